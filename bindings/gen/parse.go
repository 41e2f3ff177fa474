package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A header is what mlxshim.h declares, in its order.
type header struct {
	constants []constant
	structs   []structure
	functions []function
}

// A constant is a #define with an integer value.
type constant struct {
	name    string
	value   int64
	doc     string // the comment right above it
	section string // comments before that, set off by an empty line
	remark  string // the comment behind it, on its line
}

type structure struct {
	name   string
	doc    string
	fields []variable
}

type function struct {
	name   string
	doc    string
	params []variable
}

// A variable is a field or a parameter; ctype is written without spaces before
// its stars: "int64_t", "const char*".
type variable struct {
	ctype, name, remark string
}

// The subset of C that the header keeps to, as patterns for what may stand next.
var (
	commentPattern  = regexp.MustCompile(`^/\*(?s:(.*?))\*/`)
	definePattern   = regexp.MustCompile(`^#define[ \t]+(MLXSHIM_\w+)[ \t]+(-?\w+)[ \t]*(?:/\*(.*?)\*/)?[ \t]*\n`)
	structPattern   = regexp.MustCompile(`^typedef struct (\w+) \{\n(?s:(.*?))\} (\w+);`)
	functionPattern = regexp.MustCompile(`^MLXSHIM_EXPORT int32_t (\w+)\((.*?)\) MLXSHIM_NOEXCEPT;`)
	fieldPattern    = regexp.MustCompile(`^\s*(.+?[ *])(\w+);\s*(?:/\*(.*?)\*/)?\s*$`)
	paramPattern    = regexp.MustCompile(`^\s*(.+?[ *])(\w+)\s*$`)
	// What only a C compiler needs: include guard, export macros, extern "C".
	plumbingPattern = regexp.MustCompile(`^(?:#(?:ifndef|ifdef|if|else|endif|include)\b.*\n` +
		`|#define[ \t]+(?:MLXSHIM_H|MLXSHIM_EXPORT|MLXSHIM_NOEXCEPT)\b.*\n|extern "C" \{\n|\}\n)`)
)

// parse reads the header. Anything outside the subset is an error, so that
// nothing can be left out silently.
func parse(text string) (*header, error) {
	h := &header{}
	rest := text
	var doc, section string // comments waiting for their declaration

	// take consumes a match of p and returns its groups, nil where p does not match.
	take := func(p *regexp.Regexp) []string {
		m := p.FindStringSubmatch(rest)
		if m != nil {
			rest = rest[len(m[0]):]
		}
		return m
	}
	for {
		trimmed := strings.TrimLeft(rest, " \t\n")
		if strings.Count(rest[:len(rest)-len(trimmed)], "\n") > 1 && doc != "" {
			section, doc = joinParagraphs(section, doc), ""
		}
		if rest = trimmed; rest == "" {
			break
		}
		line := 1 + strings.Count(text[:len(text)-len(rest)], "\n")

		if m := take(commentPattern); m != nil {
			section, doc = joinParagraphs(section, doc), cleanComment(m[1])
			continue
		}
		if take(plumbingPattern) != nil {
			doc, section = "", "" // the head of the file speaks about C
			continue
		}
		if m := take(definePattern); m != nil {
			value, err := strconv.ParseInt(m[2], 0, 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s is not an integer: %q", line, m[1], m[2])
			}
			h.constants = append(h.constants, constant{m[1], value, doc, section, cleanComment(m[3])})
		} else if m := take(structPattern); m != nil {
			if m[1] != m[3] {
				return nil, fmt.Errorf("line %d: struct %s is called %s at its end", line, m[1], m[3])
			}
			fields, err := parseVariables(strings.Split(strings.TrimSpace(m[2]), "\n"), fieldPattern)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", line, m[1], err)
			}
			h.structs = append(h.structs, structure{m[1], doc, fields})
		} else if m := take(functionPattern); m != nil {
			params, err := parseVariables(strings.Split(m[2], ","), paramPattern)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", line, m[1], err)
			}
			h.functions = append(h.functions, function{m[1], doc, params})
		} else {
			start, _, _ := strings.Cut(rest, "\n")
			return nil, fmt.Errorf("line %d: outside the subset that gen reads: %q", line, start)
		}
		doc, section = "", ""
	}
	return h, nil
}

func parseVariables(parts []string, pattern *regexp.Regexp) ([]variable, error) {
	var list []variable
	for _, part := range parts {
		m := pattern.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("not a declaration: %q", strings.TrimSpace(part))
		}
		v := variable{ctype: strings.TrimSpace(m[1]), name: m[2]}
		if len(m) > 3 {
			v.remark = cleanComment(m[3])
		}
		list = append(list, v)
	}
	return list, nil
}

var rule = regexp.MustCompile(`\s*-{4,}\s*`)

// cleanComment strips what only shapes a C comment: leading stars and drawn rules.
func cleanComment(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if i > 0 {
			l = strings.TrimPrefix(strings.TrimPrefix(l, "*"), " ")
		}
		lines[i] = strings.TrimRight(rule.ReplaceAllString(l, ""), " ")
	}
	return strings.Trim(strings.Join(lines, "\n"), " \n")
}

func joinParagraphs(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}
