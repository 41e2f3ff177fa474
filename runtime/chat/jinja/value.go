package jinja

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
)

// Values in a template are one of
//
//	nil, bool, int64, *big.Int (only beyond int64), float64, string,
//	*List, *Dict, *undefined, *callable, and things with attributes (object).

// Dict is a dict that keeps the order in which its keys were first set.
type Dict struct {
	entries []entry
	index   map[any]int // by hashKey
}

type entry struct{ key, value any }

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Set sets a key to a value as [ValueOf] makes them. A value of another type
// is an error once the template touches it.
func (d *Dict) Set(key string, value any) { d.put(key, key, value) }

// Get returns the value of a key and whether the dict has it.
func (d *Dict) Get(key string) (any, bool) { return d.get(key) }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Keys returns the keys that are strings, in order.
func (d *Dict) Keys() []string {
	keys := make([]string, 0, len(d.entries))
	for _, e := range d.entries {
		if k, ok := e.key.(string); ok {
			keys = append(keys, k)
		}
	}
	return keys
}

func (d *Dict) put(hash, key, value any) {
	if i, ok := d.index[hash]; ok {
		d.entries[i].value = value
		return
	}
	d.index[hash] = len(d.entries)
	d.entries = append(d.entries, entry{key, value})
}

func (d *Dict) get(hash any) (any, bool) {
	i, ok := d.index[hash]
	if !ok {
		return nil, false
	}
	return d.entries[i].value, true
}

func (d *Dict) copy() *Dict {
	c := NewDict()
	c.update(d)
	return c
}

func (d *Dict) update(from *Dict) {
	for _, e := range from.entries {
		hash, _ := hashKey(e.key)
		d.put(hash, e.key, e.value)
	}
}

// hashKey returns the form of a key under which a Go map finds it: 1, 1.0 and
// True are one key, as in Python. It is false for what cannot be a key.
// A tuple can be one if it is short and its items are plain.
func hashKey(v any) (any, bool) {
	switch x := v.(type) {
	case nil, string, int64:
		return x, true
	case bool:
		return boolInt(x), true
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<63 {
			return int64(x), true
		}
		return x, true
	case *big.Int:
		return bigHash(x.String()), true
	case *undefined:
		return undefinedHash{}, true
	case *List:
		if x.kind != kindTuple || len(x.items) > 16 {
			return nil, false
		}
		hash := ""
		for _, item := range x.items {
			if _, nested := item.(*List); nested {
				return nil, false
			}
			h, ok := hashKey(item)
			if !ok {
				return nil, false
			}
			hash += strconv.Quote(fmt.Sprintf("%T %v", h, h))
		}
		return tupleHash(hash), true
	}
	return nil, false
}

type (
	bigHash       string
	tupleHash     string
	undefinedHash struct{}
)

// List is a list, or one of the other sequences that Python tells apart.
type List struct {
	items []any
	kind  listKind
	label string // how kindRange, kindView and kindIterator print
}

type listKind uint8

const (
	kindList listKind = iota
	kindTuple
	kindRange
	kindView     // what dict.keys() and the like return: no index
	kindIterator // what map, select and others return: runs once, no length, no index, always true
)

// NewList returns a list of values as [ValueOf] makes them.
func NewList(items ...any) *List { return &List{items: items} }

// Items returns the values in the list.
func (l *List) Items() []any { return slices.Clone(l.items) }

func newTuple(items ...any) *List { return &List{items: items, kind: kindTuple} }

func newIterator(name string, items []any) *List {
	return &List{items: items, kind: kindIterator, label: "<" + name + " object>"}
}

func (l *List) indexable() bool { return l.kind <= kindRange }

// undefined is the value of a name or attribute that is not there. It prints
// as nothing, loops over nothing and is false; any other use fails with the
// hint.
type undefined struct{ hint string }

// object is a value with attributes and nothing else of its own.
type object interface {
	attr(r *renderer, name string) (any, bool)
	String() string
}

// callable is a function or a method bound to its object.
type callable struct {
	name string
	call func(r *renderer, in arguments) any
}

// namespace is the one thing that a template can change after making it.
type namespace struct{ attrs *Dict }

func (n *namespace) attr(_ *renderer, name string) (any, bool) { return n.attrs.get(name) }
func (n *namespace) String() string                            { return "<Namespace>" }

// maxValueDepth bounds how deep the values given to a template may nest.
const maxValueDepth = 500

// ValueOf turns a Go value into a template's value. It keeps what ParseJSON
// returned, sorts the keys of Go maps (use [Dict] where the order counts) and
// takes structs and whatever else the way encoding/json does.
func ValueOf(v any) (any, error) { return valueOf(v, 0) }

func valueOf(v any, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("value is nested more than %d deep", maxValueDepth)
	}
	switch x := v.(type) {
	case nil, bool, int64, float64, string, *List, *Dict:
		return x, nil
	case int:
		return int64(x), nil
	case *big.Int:
		return normalInt(x), nil
	case json.RawMessage:
		return ParseJSON(x)
	case []string:
		l := &List{}
		for _, item := range x {
			l.items = append(l.items, item)
		}
		return l, nil
	case []any:
		l := &List{}
		for _, item := range x {
			value, err := valueOf(item, depth+1)
			if err != nil {
				return nil, err
			}
			l.items = append(l.items, value)
		}
		return l, nil
	case map[string]any:
		d := NewDict()
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			value, err := valueOf(x[k], depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(k, value)
		}
		return d, nil
	}
	if f := reflect.ValueOf(v); f.CanFloat() {
		return f.Float(), nil // JSON would turn 1.0 into the int 1
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return ParseJSON(data)
}

// typeName is the value's type as Python's error messages name it.
func typeName(v any) string {
	switch x := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *Dict:
		return "dict"
	case *List:
		return [...]string{"list", "tuple", "range", "dict view", "generator"}[x.kind]
	case *undefined:
		return "Undefined"
	case *callable:
		return "function"
	case *macro:
		return "Macro"
	case *namespace:
		return "Namespace"
	case *loop:
		return "LoopContext"
	}
	return fmt.Sprintf("%T", v)
}

func truthy(v any) bool {
	switch x := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case *big.Int:
		return x.Sign() != 0
	case float64:
		return x != 0
	case string:
		return x != ""
	case *List:
		return len(x.items) > 0 || x.kind == kindIterator
	case *Dict:
		return len(x.entries) > 0
	}
	return true
}

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
