package server

// responseBuilder makes the output of a response from what the model says, and the events of a stream on the way.
type responseBuilder struct {
	server  *Server
	request *responsesRequest
	send    func(name string, fields map[string]any) error

	open *openItem // nil: none
	end  *ending
	err  error
}

// openItem is a message or reasoning that is being written.
type openItem struct {
	outputItem
	index int
	text  []byte
}

// add takes what came.
func (b *responseBuilder) add(d delta) error {
	b.err = nil
	if d.reasoning != "" {
		b.write("reasoning", d.reasoning)
	}
	if d.content != "" {
		b.write("message", d.content)
	}
	for _, c := range d.calls {
		b.call(c.Name, c.Arguments)
	}
	if d.end != nil && b.err == nil {
		b.close(d.end.finish == finishLength)
		b.end = d.end
		b.request.answer.finish(d.end)
	}
	return b.err
}

// event sends an event, unless one failed before.
func (b *responseBuilder) event(name string, fields map[string]any) {
	if b.err == nil {
		b.err = b.send(name, fields)
	}
}

// write adds text to the open item of a kind, or opens one.
func (b *responseBuilder) write(kind, text string) {
	if b.open == nil || b.open.Type != kind {
		b.close(false)
		b.begin(kind)
	}
	b.open.text = append(b.open.text, text...)
	fields := b.where()
	fields["delta"] = text
	if kind == "message" {
		fields["logprobs"] = []any{}
	}
	b.event(b.textEvent()+".delta", fields)
}

// textEvent is what events about the open item's text are called.
func (b *responseBuilder) textEvent() string {
	if b.open.Type == "message" {
		return "response.output_text"
	}
	return "response.reasoning_text"
}

// where says what an event is about.
func (b *responseBuilder) where() map[string]any {
	return map[string]any{"item_id": b.open.ID, "output_index": b.open.index, "content_index": 0}
}

func (b *responseBuilder) begin(kind string) {
	b.open = &openItem{index: len(b.request.answer.Output)}
	if kind == "message" {
		b.open.outputItem = messageItem(b.server.newID("msg_"), inProgress, "")
	} else {
		b.open.outputItem = reasoningItem(b.server.newID("rs_"), inProgress, "")
	}
	b.event("response.output_item.added", map[string]any{"output_index": b.open.index, "item": b.open.outputItem})
	fields := b.where()
	fields["part"] = b.part("")
	b.event("response.content_part.added", fields)
}

func (b *responseBuilder) part(text string) outputPart {
	if b.open.Type == "message" {
		return textPart(text)
	}
	return outputPart{Type: "reasoning_text", Text: text}
}

// close ends the open item, if there is one.
func (b *responseBuilder) close(cut bool) {
	if b.open == nil {
		return
	}
	text, status := string(b.open.text), completed
	if cut {
		status = incomplete
	}
	fields := b.where()
	fields["text"] = text
	if b.open.Type == "message" {
		fields["logprobs"] = []any{}
	}
	b.event(b.textEvent()+".done", fields)
	fields = b.where()
	fields["part"] = b.part(text)
	b.event("response.content_part.done", fields)
	item := messageItem(b.open.ID, status, text)
	if b.open.Type != "message" {
		item = reasoningItem(b.open.ID, status, text)
	}
	b.finish(b.open.index, item)
	b.open = nil
}

// call adds a call, which is known as a whole.
func (b *responseBuilder) call(name, arguments string) {
	b.close(false)
	index, id, callID := len(b.request.answer.Output), b.server.newID("fc_"), b.server.callID(b.request.calls)
	b.event("response.output_item.added", map[string]any{"output_index": index, "item": callItem(id, inProgress, callID, name, "")})
	where := func(field string) map[string]any {
		return map[string]any{"item_id": id, "output_index": index, field: arguments}
	}
	b.event("response.function_call_arguments.delta", where("delta"))
	done := where("arguments")
	done["name"] = name
	b.event("response.function_call_arguments.done", done)
	b.finish(index, callItem(id, completed, callID, name, arguments))
}

func (b *responseBuilder) finish(index int, item outputItem) {
	b.event("response.output_item.done", map[string]any{"output_index": index, "item": item})
	b.request.answer.Output = append(b.request.answer.Output, item)
}
