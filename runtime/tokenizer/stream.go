package tokenizer

// Decoder turns ids into text while they come in. What Add returns never ends
// inside a character, and everything that Add and Flush return is together
// what [Tokenizer.Decode] gives for the same ids. It serves one text and one
// goroutine.
type Decoder struct {
	tokenizer   *Tokenizer
	skipSpecial bool
	stages      []decodeStage
	next        []func(string) // next[i] feeds stage i; the last one collects
	out         []byte
}

// NewDecoder starts a text. skipSpecial leaves special tokens out.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	d := &Decoder{tokenizer: t, skipSpecial: skipSpecial}
	d.reset()
	return d
}

func (d *Decoder) reset() {
	makers := d.tokenizer.decoder
	d.stages = make([]decodeStage, len(makers))
	d.next = make([]func(string), len(makers)+1)
	for i, start := range makers {
		d.stages[i] = start()
		d.next[i] = func(text string) { d.stages[i].add(text, d.next[i+1]) }
	}
	d.next[len(makers)] = func(text string) { d.out = append(d.out, text...) }
}

// Add takes the next id and returns the text that is now certain, which may
// be empty. Ids that the tokenizer does not know give nothing.
func (d *Decoder) Add(id int32) string {
	d.feed(id)
	return d.take()
}

// Flush ends the text and returns what was still held back. The decoder can
// then be used for another text.
func (d *Decoder) Flush() string {
	for i, stage := range d.stages {
		stage.end(d.next[i+1])
	}
	text := d.take()
	d.reset()
	return text
}

func (d *Decoder) feed(id int32) {
	token, ok := d.tokenizer.vocab.token(id)
	if !ok || d.skipSpecial && d.tokenizer.added.isSpecial(id) {
		return
	}
	d.next[0](token)
}

func (d *Decoder) take() string {
	text := string(d.out)
	d.out = d.out[:0]
	return text
}
