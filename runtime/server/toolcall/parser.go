package toolcall

import "strings"

// Parser takes a text apart.
type Parser struct {
	format Format
	state  state
	items  []Item

	// held is text that is not given out yet: what may be the beginning of a marker, white space that is dropped if a
	// call follows, or a call as far as it has come.
	held    string
	value   int // within a call: where in held its JSON begins
	scanned int // how much of held was given to scanner
	scanner scanner
	called  bool // a call was found
}

type state uint8

const (
	textState  state = iota
	startState       // of a Llama 3 answer or behind one of its calls: nothing but white space and separators yet
	gapState         // behind an opening marker: white space, or the name of Mistral's second form
	valueState       // within the JSON
	closeState       // behind a call of Hermes, before its closing marker
)

// NewParser starts a text.
func NewParser(f Format) *Parser {
	p := &Parser{format: f}
	if f == Llama3 {
		p.state = startState
	}
	return p
}

// Push takes the next piece of text and returns what is certain by now.
func (p *Parser) Push(text string) []Item {
	if p.format == None {
		return p.add(text).take()
	}
	p.held += text
	for p.step() {
	}
	return p.take()
}

// Flush ends the text and returns the rest.
func (p *Parser) Flush() []Item {
	held := p.held
	if p.called && strings.Trim(held, callSpace) == "" {
		held = "" // white space behind the last call
	}
	p.held, p.state = "", textState
	return p.add(held).take()
}

func (p *Parser) add(text string) *Parser {
	switch last := len(p.items) - 1; {
	case text == "":
	case last >= 0 && p.items[last].Call == nil:
		p.items[last].Text += text
	default:
		p.items = append(p.items, Item{Text: text})
	}
	return p
}

func (p *Parser) take() []Item {
	items := p.items
	p.items = nil
	return items
}

// step does what can be done with the held text in the current state, and reports whether there may be more to do.
func (p *Parser) step() bool {
	switch p.state {
	case textState:
		return p.text()
	case startState:
		return p.start()
	case gapState:
		return p.gap()
	case valueState:
		return p.json()
	default:
		return p.close()
	}
}

// opening is the marker that a call begins with.
func (p *Parser) opening() string { return p.format.Markers()[0] }

// text gives out what cannot be part of a marker or white space before one.
func (p *Parser) text() bool {
	marker := p.opening()
	if i := strings.Index(p.held, marker); i >= 0 {
		start := len(strings.TrimRight(p.held[:i], callSpace))
		p.add(p.held[:start])
		p.held, p.value, p.state = p.held[start:], i-start+len(marker), gapState
		return true
	}
	n := len(p.held) - partialSuffix(p.held, marker)
	n = len(strings.TrimRight(p.held[:n], callSpace))
	p.add(p.held[:n])
	p.held = p.held[n:]
	return false
}

// start looks for a call at the beginning of a Llama 3 answer.
func (p *Parser) start() bool {
	separators := callSpace
	if p.called {
		separators += ";"
	}
	rest := strings.TrimLeft(p.held, separators)
	switch {
	case rest == "" || strings.HasPrefix(llamaOpen, rest) && rest != llamaOpen:
		return false
	case rest[0] == '{':
		p.value, p.state = len(p.held)-len(rest), gapState
	default:
		p.state = textState
	}
	return true
}

// gap looks for the beginning of the JSON behind an opening marker.
func (p *Parser) gap() bool {
	rest := strings.TrimLeft(p.held[p.value:], callSpace)
	if rest == "" {
		return false
	}
	begin := len(p.held) - len(rest)
	switch {
	case rest[0] == '{' && p.format != Mistral, rest[0] == '[' && p.format == Mistral:
		p.value, p.scanned, p.scanner, p.state = begin, begin, scanner{}, valueState
		return true
	case p.format == Mistral:
		return p.named(begin, rest)
	}
	return p.malformed()
}

// named looks for the end of the name in name[ARGS]{…}. rest is what stands behind the marker.
func (p *Parser) named(begin int, rest string) bool {
	i := strings.IndexByte(rest, '{')
	if i < 0 && len(rest) <= maxHeadBytes {
		return false
	}
	if i < 0 || i > maxHeadBytes {
		return p.malformed()
	}
	if _, ok := mistralName(rest[:i]); !ok {
		return p.malformed()
	}
	p.value, p.scanned, p.scanner, p.state = begin+i, begin+i, scanner{}, valueState
	return true
}

// mistralName takes the name from what stands before the arguments: name, name[ARGS] or name[CALL_ID]id[ARGS].
func mistralName(head string) (string, bool) {
	head = strings.TrimSuffix(strings.TrimRight(head, callSpace), mistralArgs)
	name, _, _ := strings.Cut(head, mistralID)
	ok := name != "" && len(name) <= maxNameBytes && !strings.ContainsAny(name, callSpace+`[]{}"`)
	return name, ok
}

// json waits for the end of the JSON.
func (p *Parser) json() bool {
	n, ended := p.scanner.scan(p.held[p.scanned:])
	p.scanned += n
	if !ended {
		return false
	}
	calls, ok := p.calls(p.held[p.value:p.scanned])
	if !ok {
		return p.malformed()
	}
	for _, c := range calls {
		p.items = append(p.items, Item{Call: c})
	}
	p.held, p.called = p.held[p.scanned:], true
	switch p.format {
	case Hermes:
		p.state = closeState
	case Llama3:
		p.state = startState
	default:
		p.state = textState
	}
	return true
}

// calls reads what the JSON of a call holds.
func (p *Parser) calls(value string) ([]*Call, bool) {
	if value[0] == '[' {
		return parseCalls([]byte(value))
	}
	if p.format == Mistral {
		head := strings.TrimLeft(p.held[:p.value], callSpace)
		name, _ := mistralName(strings.TrimLeft(strings.TrimPrefix(head, mistralOpen), callSpace))
		arguments, ok := argumentsText([]byte(value))
		return []*Call{{name, arguments}}, ok
	}
	c, ok := parseCall([]byte(value))
	return []*Call{c}, ok
}

// close drops the closing marker, if it is there.
func (p *Parser) close() bool {
	rest := strings.TrimLeft(p.held, callSpace)
	if strings.HasPrefix(hermesClose, rest) && rest != hermesClose {
		return false
	}
	if after, ok := strings.CutPrefix(rest, hermesClose); ok {
		p.held = after
	}
	p.state = textState
	return true
}

// malformed makes text of what looked like a call, up to where it was understood.
func (p *Parser) malformed() bool {
	n := max(p.value, 1) // at least the marker, or a bracket
	if p.state == valueState {
		n = p.scanned
	}
	p.add(p.held[:n])
	p.held, p.state = p.held[n:], textState
	return true
}

// partialSuffix returns the length of the longest end of text that is a beginning of the marker, but not all of it.
func partialSuffix(text, marker string) int {
	for n := min(len(text), len(marker)-1); n > 0; n-- {
		if strings.HasSuffix(text, marker[:n]) {
			return n
		}
	}
	return 0
}
