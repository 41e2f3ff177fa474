package jinja

// A compiled template is a list of statements. exec_*.go runs statements,
// eval*.go evaluates expressions.

type statement struct {
	line int
	node
}

// node is a statement's work; the signal tells an enclosing loop what to do.
type node interface {
	exec(r *renderer) signal
}

type signal uint8

const (
	signalNone signal = iota
	signalBreak
	signalContinue
)

type expr interface {
	eval(r *renderer) any
}

// Statements.
type (
	textNode   string
	outputNode struct{ value expr }
	ifNode     struct {
		branches  []ifBranch
		otherwise []statement
	}
	ifBranch struct {
		cond expr
		body []statement
	}
	forNode struct {
		target    target
		in        expr
		cond      expr // or nil
		body      []statement
		otherwise []statement
		recursive bool
	}
	// setNode is {% set target = value %}.
	setNode struct {
		target target
		value  expr
	}
	// setBlockNode is {% set target | filters %}body{% endset %}.
	setBlockNode struct {
		target  target
		filters []filterCall
		body    []statement
	}
	macroNode struct {
		name     string
		params   []string
		defaults []expr // of the last params
		body     []statement
		// The body uses these names, so the macro takes what they stand for.
		usesCaller, usesVarargs, usesKwargs bool
	}
	callBlockNode struct {
		call  *callExpr
		macro *macroNode // the block, as the macro "caller"
	}
	filterBlockNode struct {
		filters []filterCall
		body    []statement
	}
	withNode struct {
		targets []target
		values  []expr
		body    []statement
	}
	// scopeNode is a block with a scope of its own and no other meaning here:
	// {% block %} and {% generation %}.
	scopeNode    []statement
	breakNode    struct{}
	continueNode struct{}
)

// target is what set and for assign to: one of name, namespace attribute, or a
// tuple of targets.
type target interface {
	assign(r *renderer, v any)
}

type (
	nameTarget  string
	attrTarget  struct{ namespace, attr string }
	tupleTarget []target
)

// Expressions.
type (
	literal  struct{ value any }
	nameExpr string
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, values []expr }
	condExpr struct{ cond, then, otherwise expr } // otherwise may be nil
	notExpr  struct{ x expr }
	signExpr struct {
		negative bool
		x        expr
	}
	logicExpr struct {
		or   bool
		a, b expr
	}
	binaryExpr struct {
		op   string
		a, b expr
	}
	// compareExpr is a chain, a < b <= c.
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	attrExpr struct {
		x    expr
		name string
	}
	indexExpr struct{ x, index expr }
	sliceExpr struct{ x, from, to, step expr } // bounds may be nil
	callExpr  struct {
		line int
		f    expr
		args argExprs
	}
	filterExpr struct {
		x expr
		filterCall
	}
	testExpr struct {
		line   int
		x      expr
		name   string
		args   argExprs
		negate bool
	}
	filterCall struct {
		line int
		name string
		args argExprs
	}
	argExprs struct {
		pos    []expr
		names  []string // of values
		values []expr
		star   expr // *args, or nil
		stars  expr // **kwargs, or nil
	}
)
