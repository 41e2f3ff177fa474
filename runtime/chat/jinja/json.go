package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDigits is Python's own bound on the digits of an int in text; it keeps
// conversions, which take quadratic time, short.
const maxDigits = 4300

// ParseJSON reads one JSON value for a template: objects keep the order of
// their keys, and 1, 1.0 and a number of thirty digits keep apart.
func ParseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("bad JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("bad JSON: something follows the value")
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxValueDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '{' {
			return decodeObject(d, depth)
		}
		return decodeArray(d, depth)
	case json.Number:
		return decodeNumber(v)
	}
	return t, nil
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	o := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		o.Set(key.(string), value)
	}
	_, err := d.Token()
	return o, err
}

func decodeArray(d *json.Decoder, depth int) (any, error) {
	l := &List{}
	for d.More() {
		value, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, value)
	}
	_, err := d.Token()
	return l, err
}

func decodeNumber(n json.Number) (any, error) {
	text := n.String()
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if errors.Is(err, strconv.ErrRange) {
			err = nil // as in Python: infinity
		}
		return f, err
	}
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	i, ok := new(big.Int), false
	if len(text) <= maxDigits {
		i, ok = i.SetString(text, 10)
	}
	if !ok {
		return nil, fmt.Errorf("number has more than %d digits", maxDigits)
	}
	return i, nil
}

// jsonStyle holds the options of the tojson filter, which are those of
// Python's json.dumps.
type jsonStyle struct {
	ascii, sortKeys bool
	multiline       bool
	indent          string
	itemSep, keySep string
}

// json writes v as json.dumps does.
func (w *writer) json(v any, s *jsonStyle, depth int) {
	w.visit(depth)
	switch x := v.(type) {
	case nil:
		w.text("null")
	case bool:
		w.text(strconv.FormatBool(x))
	case int64:
		w.text(strconv.FormatInt(x, 10))
	case *big.Int:
		w.text(x.String())
	case float64:
		w.text(jsonFloat(x))
	case string:
		w.jsonString(x, s.ascii)
	case *List:
		if x.kind > kindTuple {
			w.r.fail("Object of type %s is not JSON serializable", typeName(v))
		}
		w.jsonItems('[', ']', len(x.items), s, depth, func(i int) { w.json(x.items[i], s, depth+1) })
	case *Dict:
		entries := x.entries
		if s.sortKeys {
			entries = slices.Clone(entries)
			sortBy(w.r, entries, func(e entry) any { return e.key }, false)
		}
		w.jsonItems('{', '}', len(entries), s, depth, func(i int) {
			w.jsonString(w.r.jsonKey(entries[i].key), s.ascii)
			w.text(s.keySep)
			w.json(entries[i].value, s, depth+1)
		})
	default:
		w.r.fail("Object of type %s is not JSON serializable", typeName(v))
	}
}

func (w *writer) jsonItems(open, closer byte, n int, s *jsonStyle, depth int, item func(i int)) {
	w.text(string(open))
	for i := range n {
		if i > 0 {
			w.text(s.itemSep)
		}
		w.jsonNewline(s, depth+1)
		item(i)
	}
	if n > 0 {
		w.jsonNewline(s, depth)
	}
	w.text(string(closer))
}

func (w *writer) jsonNewline(s *jsonStyle, depth int) {
	if s.multiline {
		w.text("\n")
		for range depth {
			w.text(s.indent)
		}
	}
}

func (r *renderer) jsonKey(key any) string {
	switch k := key.(type) {
	case string:
		return k
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(k)
	case int64:
		return strconv.FormatInt(k, 10)
	case *big.Int:
		return k.String()
	case float64:
		return jsonFloat(k)
	}
	r.fail("keys must be str, int, float, bool or None, not %s", typeName(key))
	return ""
}

func jsonFloat(f float64) string {
	switch s := formatFloat(f); s {
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	case "nan":
		return "NaN"
	default:
		return s
	}
}

func (w *writer) jsonString(s string, ascii bool) {
	w.text(`"`)
	plain := 0 // start of the run that needs no escapes
	for i, c := range s {
		escaped := ""
		switch {
		case c == '"' || c == '\\':
			escaped = `\` + string(c)
		case c == '\n':
			escaped = `\n`
		case c == '\r':
			escaped = `\r`
		case c == '\t':
			escaped = `\t`
		case c == '\b':
			escaped = `\b`
		case c == '\f':
			escaped = `\f`
		case c < 0x20, ascii && c >= 0x7f && c < 0x10000:
			escaped = fmt.Sprintf(`\u%04x`, c)
		case ascii && c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			escaped = fmt.Sprintf(`\u%04x\u%04x`, high, low)
		default:
			continue
		}
		w.text(s[plain:i])
		w.text(escaped)
		_, n := utf8.DecodeRuneInString(s[i:])
		plain = i + n
	}
	w.text(s[plain:])
	w.text(`"`)
}
