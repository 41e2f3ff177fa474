package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// timeLayouts are the strftime letters that are plain layouts of package time.
var timeLayouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06",
	'c': "Mon Jan _2 15:04:05 2006", 'r': "03:04:05 PM",
}

// strftime formats a time as Python does in the C locale; "%-d" drops the
// padding. A letter it does not know stays as it is written.
func strftime(r *renderer, t time.Time, format string) string {
	w := writer{r: r}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			w.text(format[i : i+1])
			continue
		}
		i++
		unpadded := format[i] == '-' && i+1 < len(format)
		if unpadded {
			i++
		}
		s := timeField(t, format[i])
		if unpadded {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		w.text(s)
	}
	return w.String()
}

func timeField(t time.Time, letter byte) string {
	if layout, ok := timeLayouts[letter]; ok {
		return t.Format(layout)
	}
	switch letter {
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'w':
		return strconv.Itoa(int(t.Weekday()))
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1)
	case 'V':
		_, week := t.ISOWeek()
		return fmt.Sprintf("%02d", week)
	case 'G':
		year, _ := t.ISOWeek()
		return strconv.Itoa(year)
	case 's':
		return strconv.FormatInt(t.Unix(), 10)
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'z', 'Z': // Python's datetime.now() knows no zone
		return ""
	case '%':
		return "%"
	}
	return "%" + string(letter)
}
