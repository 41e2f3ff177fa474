package bindings

// Objects with handles that no library gave, for tests in package bindings_test.

func MakeContext(c *Context, handle int64) *Context {
	return &Context{caller: *c.library.caller(), library: c.library, handle: handle}
}
func MakeFile(c *Context, handle int64) File       { return File{c, handle} }
func MakeWeights(c *Context, handle int64) Weights { return Weights{c, handle} }
func MakeState(c *Context, handle int64) State     { return State{c, handle} }
func MakeProgram(c *Context, handle int64) Program { return Program{c, handle} }
func MakeValue(c *Context, handle int64) Value     { return Value{c, handle} }

func (c *Context) Handle() int64 { return c.handle }
func (w Weights) Handle() int64  { return w.handle }
