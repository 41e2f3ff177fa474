package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// maxNesting bounds how deep statements and expressions may nest.
const maxNesting = 200

// parser reads statements; parse_expr.go has the expressions. Errors are
// panics with a *SyntaxError, which Compile turns into errors.
type parser struct {
	segments []segment
	next     int     // index into segments
	tokens   []token // of the tag being read
	i        int     // index into tokens
	nesting  int
	loops    int          // loops around the current statement
	macros   []*macroNode // macros around the current expression
}

func (p *parser) template() []statement {
	body, end := p.body()
	if end != "" {
		p.fail("unexpected tag %q", end)
	}
	return body
}

// body parses statements up to the tag with one of the given names, whose name
// it takes and returns; with no names, to the end of the template.
func (p *parser) body(ends ...string) (out []statement, end string) {
	p.enter()
	defer p.leave()
	for p.next < len(p.segments) {
		s := p.segments[p.next]
		p.next++
		if s.kind == segmentText {
			out = append(out, statement{s.line, textNode(s.text)})
			continue
		}
		p.tokens, p.i = s.tokens, 0
		if s.kind == segmentOutput {
			value := p.tuple(p.expr)
			p.endTag()
			out = append(out, statement{s.line, outputNode{value}})
			continue
		}
		name := p.name()
		if slices.Contains(ends, name) {
			return out, name
		}
		out = append(out, statement{s.line, p.statement(name)})
	}
	if len(ends) > 0 {
		p.fail("the template ends before %s", strings.Join(ends, " or "))
	}
	return out, ""
}

// block parses the rest of the opening tag's line and the body up to end.
func (p *parser) block(end string) []statement {
	p.endTag()
	body, _ := p.body(end)
	if end == "endblock" && p.peek().kind == tokenName {
		p.name()
	}
	p.endTag()
	return body
}

func (p *parser) statement(name string) node {
	switch name {
	case "if":
		return p.ifStatement()
	case "for":
		return p.forStatement()
	case "set":
		return p.setStatement()
	case "macro":
		m := &macroNode{name: p.name()}
		p.macroRest(m, "endmacro", true)
		return m
	case "call":
		return p.callBlock()
	case "filter":
		f := &filterBlockNode{filters: []filterCall{p.filter()}}
		for p.accept("|") {
			f.filters = append(f.filters, p.filter())
		}
		f.body = p.block("endfilter")
		return f
	case "with":
		return p.withStatement()
	case "generation":
		return scopeNode(p.block("endgeneration"))
	case "block":
		p.name()
		return scopeNode(p.block("endblock"))
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%s outside of a loop", name)
		}
		p.endTag()
		if name == "break" {
			return breakNode{}
		}
		return continueNode{}
	}
	p.fail("unknown or misplaced tag %q", name)
	return nil
}

func (p *parser) ifStatement() node {
	n := &ifNode{}
	for {
		cond := p.tuple(p.or)
		p.endTag()
		body, end := p.body("elif", "else", "endif")
		n.branches = append(n.branches, ifBranch{cond, body})
		switch end {
		case "else":
			n.otherwise = p.block("endif")
			return n
		case "endif":
			p.endTag()
			return n
		}
	}
}

func (p *parser) forStatement() node {
	n := &forNode{target: p.targets(false)}
	p.expect("in")
	n.in = p.tuple(p.or)
	if p.accept("if") {
		n.cond = p.expr()
	}
	n.recursive = p.accept("recursive")
	p.endTag()
	p.loops++
	body, end := p.body("else", "endfor")
	p.loops--
	n.body = body
	if end == "else" {
		n.otherwise = p.block("endfor")
	} else {
		p.endTag()
	}
	return n
}

func (p *parser) setStatement() node {
	to := p.targets(true)
	if p.accept("=") {
		value := p.tuple(p.expr)
		p.endTag()
		return &setNode{to, value}
	}
	n := &setBlockNode{target: to}
	for p.accept("|") {
		n.filters = append(n.filters, p.filter())
	}
	n.body = p.block("endset")
	return n
}

func (p *parser) withStatement() node {
	n := &withNode{}
	for p.peek().kind != tokenEnd {
		n.targets = append(n.targets, p.target(false))
		p.expect("=")
		n.values = append(n.values, p.expr())
		if !p.accept(",") {
			break
		}
	}
	n.body = p.block("endwith")
	return n
}

func (p *parser) callBlock() node {
	m := &macroNode{name: "caller"}
	hasParams := p.is("(")
	if hasParams {
		p.macroParams(m)
	}
	call, ok := p.expr().(*callExpr)
	if !ok {
		p.fail("call needs a macro call, such as {%% call box() %%}")
	}
	p.macroRest(m, "endcall", false)
	return &callBlockNode{call, m}
}

// macroRest parses a macro's parameters, if it still has some to come, and its
// body.
func (p *parser) macroRest(m *macroNode, end string, params bool) {
	if params {
		p.macroParams(m)
	}
	p.macros = append(p.macros, m)
	loops := p.loops
	p.loops = 0
	m.body = p.block(end)
	p.loops = loops
	p.macros = p.macros[:len(p.macros)-1]
}

func (p *parser) macroParams(m *macroNode) {
	p.expect("(")
	for !p.accept(")") {
		m.params = append(m.params, p.name())
		if p.accept("=") {
			m.defaults = append(m.defaults, p.expr())
		} else if len(m.defaults) > 0 {
			p.fail("a parameter without default follows one with a default")
		}
		if !p.is(")") {
			p.expect(",")
		}
	}
}

// targets parses what is assigned to: a, b or (a, (b, c)) or, if attrs, ns.a.
func (p *parser) targets(attrs bool) target {
	first := p.target(attrs)
	if !p.is(",") {
		return first
	}
	list := tupleTarget{first}
	for p.accept(",") {
		if p.is("in") || p.is("=") || p.is(")") || p.peek().kind == tokenEnd {
			break
		}
		list = append(list, p.target(attrs))
	}
	return list
}

func (p *parser) target(attrs bool) target {
	p.enter()
	defer p.leave()
	if p.accept("(") {
		t := p.targets(attrs)
		p.expect(")")
		return t
	}
	name := p.name()
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		p.fail("cannot assign to %q", name)
	}
	if attrs && p.accept(".") {
		return attrTarget{name, p.name()}
	}
	return nameTarget(name)
}

// Tokens.

func (p *parser) peek() token {
	if p.i < len(p.tokens) {
		return p.tokens[p.i]
	}
	return token{}
}

func (p *parser) take() token {
	t := p.peek()
	p.i++
	return t
}

// is tells whether the next token is the operator or word.
func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == tokenOperator || t.kind == tokenName) && t.text == text
}

func (p *parser) accept(text string) bool {
	if !p.is(text) {
		return false
	}
	p.i++
	return true
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail("expected %q, found %v", text, p.peek())
	}
}

func (p *parser) name() string {
	t := p.take()
	if t.kind != tokenName {
		p.i--
		p.fail("expected a name, found %v", t)
	}
	return t.text
}

func (p *parser) endTag() {
	if t := p.peek(); t.kind != tokenEnd {
		p.fail("expected the end of the tag, found %v", t)
	}
}

func (p *parser) enter() {
	if p.nesting++; p.nesting > maxNesting {
		p.fail("nested more than %d deep", maxNesting)
	}
}

func (p *parser) leave() { p.nesting-- }

func (p *parser) fail(format string, a ...any) {
	line := 1
	if n := len(p.tokens); n > 0 {
		line = p.tokens[min(p.i, n-1)].line
	}
	panic(&SyntaxError{Line: line, Message: fmt.Sprintf(format, a...)})
}
