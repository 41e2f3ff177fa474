package jinja

import (
	"math/big"
	"slices"
	"strconv"
)

// Expressions, weakest binding first: a if b else c; or; and; not; comparisons;
// + and -; ~; * / // %; **; signs; then .attr [index] (call), |filter and is
// test. Jinja's order differs from Python's: ~ binds tighter than +, ** is
// taken from left to right, and -x|abs is (-x)|abs.

// tuple parses a single expression or several with commas between, each by
// item, which is expr or, where "if" belongs to the statement, or.
func (p *parser) tuple(item func() expr) expr {
	first := item()
	if !p.is(",") {
		return first
	}
	list := &listExpr{items: []expr{first}, tuple: true}
	for p.accept(",") {
		if p.peek().kind == tokenEnd || p.is(")") || p.is("]") || p.is("=") {
			break
		}
		list.items = append(list.items, item())
	}
	return list
}

func (p *parser) expr() expr {
	p.enter()
	defer p.leave()
	e := p.or()
	for p.accept("if") {
		cond := p.or()
		var otherwise expr
		if p.accept("else") {
			otherwise = p.expr()
		}
		e = &condExpr{cond, e, otherwise}
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.accept("or") {
		e = &logicExpr{true, e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.accept("and") {
		e = &logicExpr{false, e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if p.accept("not") {
		p.enter()
		defer p.leave()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	c := &compareExpr{first: p.sum()}
	for op := p.compareOp(); op != ""; op = p.compareOp() {
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return c.first
	}
	return c
}

func (p *parser) compareOp() string {
	if op := p.acceptOperator("==", "!=", "<", ">", "<=", ">="); op != "" {
		return op
	}
	if p.accept("in") {
		return "in"
	}
	if p.is("not") {
		p.i++
		if p.accept("in") {
			return "not in"
		}
		p.i--
	}
	return ""
}

// acceptOperator takes the next token if it is one of the operators.
func (p *parser) acceptOperator(ops ...string) string {
	t := p.peek()
	if t.kind != tokenOperator || !slices.Contains(ops, t.text) {
		return ""
	}
	p.i++
	return t.text
}

// leftToRight parses operands with operators of one strength between.
func (p *parser) leftToRight(operand func() expr, ops ...string) expr {
	e := operand()
	for op := p.acceptOperator(ops...); op != ""; op = p.acceptOperator(ops...) {
		e = &binaryExpr{op, e, operand()}
	}
	return e
}

func (p *parser) sum() expr     { return p.leftToRight(p.concat, "+", "-") }
func (p *parser) concat() expr  { return p.leftToRight(p.product, "~") }
func (p *parser) product() expr { return p.leftToRight(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.leftToRight(p.filtered, "**") }

func (p *parser) filtered() expr { return p.filtersAndTests(p.unary()) }

func (p *parser) unary() expr {
	if op := p.acceptOperator("-", "+"); op != "" {
		p.enter()
		defer p.leave()
		return p.postfix(&signExpr{op == "-", p.unary()})
	}
	return p.postfix(p.primary())
}

func (p *parser) primary() expr {
	t := p.take()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return &literal{true}
		case "false", "False":
			return &literal{false}
		case "none", "None":
			return &literal{nil}
		case "if", "else", "elif", "in", "and", "or", "is", "not", "recursive":
			p.i--
			p.fail("expected an expression, found %v", t)
		}
		p.noteName(t.text)
		return nameExpr(t.text)
	case tokenString:
		text := t.text
		for p.peek().kind == tokenString { // "a" "b" is "ab"
			text += p.take().text
		}
		return &literal{text}
	case tokenInt:
		return &literal{p.integer(t.text)}
	case tokenFloat:
		v, err := strconv.ParseFloat(t.text, 64)
		if err != nil && v == 0 {
			p.fail("bad number %s", t.text)
		}
		return &literal{v}
	case tokenOperator:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			list := &listExpr{}
			p.items("]", func() { list.items = append(list.items, p.expr()) })
			return list
		case "{":
			d := &dictExpr{}
			p.items("}", func() {
				d.keys = append(d.keys, p.expr())
				p.expect(":")
				d.values = append(d.values, p.expr())
			})
			return d
		}
	}
	p.i--
	p.fail("expected an expression, found %v", t)
	return nil
}

func (p *parser) parenthesis() expr {
	if p.accept(")") {
		return &listExpr{tuple: true}
	}
	e := p.tuple(p.expr)
	p.expect(")")
	return e
}

// items parses a list with commas between up to the closer.
func (p *parser) items(closer string, item func()) {
	for !p.accept(closer) {
		item()
		if !p.is(closer) {
			p.expect(",")
		}
	}
}

func (p *parser) integer(text string) any {
	if v, err := strconv.ParseInt(text, 0, 64); err == nil {
		return v
	}
	if len(text) <= maxDigits {
		if v, ok := new(big.Int).SetString(text, 0); ok {
			return v
		}
	}
	p.fail("bad number %s", text)
	return nil
}

// noteName remembers that the macros around use a name with a special meaning.
func (p *parser) noteName(name string) {
	for _, m := range p.macros {
		switch name {
		case "caller":
			m.usesCaller = true
		case "varargs":
			m.usesVarargs = true
		case "kwargs":
			m.usesKwargs = true
		}
	}
}

func (p *parser) postfix(e expr) expr {
	for {
		switch p.acceptOperator(".", "[", "(") {
		case ".":
			if p.peek().kind == tokenInt {
				e = &indexExpr{e, &literal{p.integer(p.take().text)}}
			} else {
				e = &attrExpr{e, p.name()}
			}
		case "[":
			e = p.subscript(e)
		case "(":
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) call(f expr) expr {
	line := p.tokens[p.i-1].line
	return &callExpr{line, f, p.args()}
}

// subscript parses what follows x[ : an index or a slice.
func (p *parser) subscript(x expr) expr {
	var parts [3]expr
	n := 0
	for !p.is("]") {
		if p.accept(":") {
			if n++; n > 2 {
				p.fail("a slice has at most two colons")
			}
			continue
		}
		if parts[n] != nil {
			p.fail("expected \"]\", found %v", p.peek())
		}
		parts[n] = p.tuple(p.expr)
	}
	p.expect("]")
	if n > 0 {
		return &sliceExpr{x, parts[0], parts[1], parts[2]}
	}
	if parts[0] == nil {
		p.fail("empty subscript")
	}
	return &indexExpr{x, parts[0]}
}

func (p *parser) filtersAndTests(e expr) expr {
	for {
		switch {
		case p.acceptOperator("|") != "":
			e = &filterExpr{e, p.filter()}
		case p.peek().kind == tokenName && p.accept("is"):
			e = p.test(e)
		case p.acceptOperator("(") != "":
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filter() filterCall {
	f := filterCall{line: p.peek().line, name: p.dottedName()}
	if p.acceptOperator("(") != "" {
		f.args = p.args()
	}
	return f
}

func (p *parser) dottedName() string {
	name := p.name()
	for p.acceptOperator(".") != "" {
		name += "." + p.name()
	}
	return name
}

// test parses what follows "x is". A test may take one argument without
// parentheses: x is divisibleby 3.
func (p *parser) test(x expr) expr {
	t := &testExpr{line: p.peek().line, x: x, negate: p.accept("not"), name: p.dottedName()}
	if p.acceptOperator("(") != "" {
		t.args = p.args()
	} else if p.atTestArgument() {
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	return t
}

func (p *parser) atTestArgument() bool {
	switch t := p.peek(); t.kind {
	case tokenString, tokenInt, tokenFloat:
		return true
	case tokenOperator:
		return t.text == "[" || t.text == "{"
	case tokenName:
		if t.text == "is" {
			p.fail("tests cannot be chained with \"is\"")
		}
		return !slices.Contains([]string{"else", "or", "and", "if", "in", "not", "recursive"}, t.text)
	}
	return false
}

// args parses call arguments after the opening parenthesis.
func (p *parser) args() (a argExprs) {
	p.items(")", func() {
		switch {
		case p.acceptOperator("*") != "":
			if a.star != nil || a.stars != nil {
				p.fail("only one *argument is allowed")
			}
			a.star = p.expr()
		case p.acceptOperator("**") != "":
			if a.stars != nil {
				p.fail("only one **argument is allowed")
			}
			a.stars = p.expr()
		case p.peek().kind == tokenName && p.i+1 < len(p.tokens) && p.tokens[p.i+1] == (token{tokenOperator, "=", p.tokens[p.i+1].line}):
			name := p.name()
			p.i++
			if slices.Contains(a.names, name) {
				p.fail("argument %q is given twice", name)
			}
			a.names = append(a.names, name)
			a.values = append(a.values, p.expr())
		default:
			if len(a.names) > 0 || a.star != nil || a.stars != nil {
				p.fail("a positional argument follows a named one")
			}
			a.pos = append(a.pos, p.expr())
		}
	})
	return a
}
