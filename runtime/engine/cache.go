package engine

import "slices"

// pageTokens is how many tokens a page holds, with their keys and values in all layers. Pages of the native library are
// of the same size.
const pageTokens = 64

// pagesFor is how many pages so many tokens take.
func pagesFor(tokens int) int { return (tokens + pageTokens - 1) / pageTokens }

// store is what the cache asks of the library's state.
type store interface {
	Reset(slot int) error
	Copy(from, to, tokens int) error
}

// cache knows what every slot of the library's state holds. The pages of all slots form a radix tree: the path from the
// root to a page is how the sequences begin that hold it. A page that several slots hold is written by none of them: who
// wants to gets a copy of it. Slots of sequences that have ended keep their pages until others need them; then the last
// page goes of the slot that was not used for the longest time.
//
// The library does what is noted here: native's copies share pages, until somebody writes. MLX's do not: there every
// slot has pages of its own, and a page is only an amount of memory.
type cache struct {
	store  store
	shares bool // copies share pages
	keep   bool // sequences that have ended stay
	root   page
	slots  []slot
	spare  int // a slot that stays empty, to shorten others with
	most   int // pages that there may be
	used   int // pages that there are
	clock  uint64
}

// page is a node of the tree.
type page struct {
	parent   *page
	children []*page
	tokens   []int32 // that are known to be in it
	slots    []int   // that hold it
}

// slot is what the library holds of one sequence.
type slot struct {
	pages []*page
	known int // tokens in them that are known; one more may be on its way
	busy  bool
	used  uint64 // by the clock
}

// newCache makes a cache over so many slots, one of which stays empty.
func newCache(s store, slots, pages int, shares, keep bool) *cache {
	return &cache{store: s, shares: shares, keep: keep, slots: make([]slot, slots), spare: slots - 1, most: pages}
}

func (c *cache) free() int { return c.most - c.used }

// longest finds the page down to which the tree agrees with tokens, and how many of them that are.
func (p *page) longest(tokens []int32) (last *page, n int) {
	for _, child := range p.children {
		k, end := common(child.tokens, tokens), child
		if k == pageTokens {
			if deeper, more := child.longest(tokens[k:]); more > 0 {
				k, end = k+more, deeper
			}
		}
		if k > n {
			last, n = end, k
		}
	}
	return last, n
}

// busy reports whether a sequence that is running holds the page.
func (c *cache) busy(p *page) bool {
	return slices.ContainsFunc(p.slots, func(i int) bool { return c.slots[i].busy })
}

// held is how many pages running sequences hold.
func (c *cache) held() int {
	n := 0
	var count func(*page)
	count = func(p *page) {
		for _, child := range p.children {
			if c.busy(child) { // else none below it is
				n++
				count(child)
			}
		}
	}
	count(&c.root)
	return n
}

// heldOf is how many whole pages of a sequence that begins with tokens running sequences hold already.
func (c *cache) heldOf(tokens []int32) int {
	if !c.shares || !c.keep {
		return 0
	}
	p, n := c.root.longest(tokens)
	if n%pageTokens != 0 {
		p = p.parent
	}
	held := 0
	for ; p != nil && p != &c.root; p = p.parent {
		if c.busy(p) {
			held++
		}
	}
	return held
}

// take gives a sequence a slot that, with reuse, holds as many of its first tokens as are to be found, but not the last
// one, which must be computed to go on. There must be a slot that is not busy.
func (c *cache) take(tokens []int32, reuse bool) (slot, shared int, err error) {
	source, over := -1, false
	if c.keep && reuse {
		source, shared, over = c.find(tokens[:len(tokens)-1])
	}
	if over {
		slot = source
		c.leave(slot, pagesFor(shared))
	} else {
		if slot, err = c.empty(source); err != nil {
			return 0, 0, err
		}
		if shared > 0 {
			if shared, err = c.copy(source, slot, shared); err != nil {
				return 0, 0, err
			}
		}
	}
	s := &c.slots[slot]
	s.busy, s.known = true, shared
	c.touch(slot)
	return slot, shared, nil
}

// find is the slot that begins with the most of tokens, and whether it can be taken over: it is not busy, and most of
// what it holds goes on being of use.
func (c *cache) find(tokens []int32) (slot, shared int, over bool) {
	p, n := c.root.longest(tokens)
	if n == 0 {
		return -1, 0, false
	}
	slot = slices.MaxFunc(p.slots, func(a, b int) int { return c.slots[a].known - c.slots[b].known })
	n = min(n, c.slots[slot].known) // the others know only a part of the page that they share
	for _, i := range p.slots {
		s := &c.slots[i]
		ends := !c.shares || s.pages[len(s.pages)-1] == p
		if !s.busy && ends && n <= s.known && s.known <= 2*n {
			return i, n, true
		}
	}
	return slot, n, false
}

// empty finds an empty slot other than source. If there is none, the one becomes empty that was not used for the longest
// time.
func (c *cache) empty(source int) (int, error) {
	oldest := -1
	for i := range c.slots {
		s := &c.slots[i]
		switch {
		case s.busy || i == source || i == c.spare:
		case len(s.pages) == 0:
			return i, nil
		case oldest < 0 || s.used < c.slots[oldest].used:
			oldest = i
		}
	}
	return oldest, c.drop(oldest)
}

// copy makes an empty slot begin with tokens of another one, and returns how many of them it has: where copies take
// memory, there must be some.
func (c *cache) copy(from, to, tokens int) (int, error) {
	count := pagesFor(tokens)
	if !c.shares {
		s := &c.slots[from]
		was := s.busy
		s.busy = true // nobody frees it now
		enough, err := c.makeFree(func() int { return count })
		s.busy = was
		if !enough || err != nil {
			return 0, err
		}
	}
	if err := c.store.Copy(from, to, tokens); err != nil {
		return 0, err
	}
	for n, p := range c.slots[from].pages[:count] {
		if !c.shares {
			p = c.add(to, p.tokens[:min(len(p.tokens), tokens-n*pageTokens)])
		}
		c.hold(to, p)
	}
	return tokens, nil
}

// add makes a page behind the last one of a slot, which has yet to hold it.
func (c *cache) add(slot int, tokens []int32) *page {
	parent := &c.root
	if pages := c.slots[slot].pages; len(pages) > 0 {
		parent = pages[len(pages)-1]
	}
	p := &page{parent: parent, tokens: slices.Clone(tokens)}
	parent.children = append(parent.children, p)
	c.used++
	return p
}

// hold gives a slot a page behind its last one.
func (c *cache) hold(slot int, p *page) {
	p.slots = append(p.slots, slot)
	c.slots[slot].pages = append(c.slots[slot].pages, p)
}

// leave takes away the pages of a slot but the first so many.
func (c *cache) leave(slot, count int) {
	s := &c.slots[slot]
	for n := len(s.pages) - 1; n >= count; n-- {
		p := s.pages[n]
		p.slots = without(p.slots, slot)
		if len(p.slots) == 0 {
			p.parent.children = without(p.parent.children, p)
			c.used--
		}
	}
	s.pages = s.pages[:min(count, len(s.pages))]
	s.known = min(s.known, count*pageTokens)
}

func without[T comparable](list []T, e T) []T {
	i := slices.Index(list, e)
	return slices.Delete(list, i, i+1)
}

// lack is how many pages it takes to write the tokens [start, end) of a slot.
func (c *cache) lack(slot, start, end int) int {
	pages := c.slots[slot].pages
	n := max(pagesFor(end)-len(pages), 0)
	if first := start / pageTokens; first < len(pages) && len(pages[first].slots) > 1 {
		n++
	}
	return n
}

// open notes that the tokens [start, end) of a slot are about to be written: the pages are its own then. Nothing is
// known to be in it from start on.
func (c *cache) open(slot, start, end int) {
	s := &c.slots[slot]
	s.known = min(s.known, start)
	if first := start / pageTokens; first < len(s.pages) {
		p := s.pages[first]
		kept := p.tokens[:min(len(p.tokens), start%pageTokens)]
		if len(p.slots) > 1 {
			known := s.known
			c.leave(slot, first)
			c.hold(slot, c.add(slot, kept))
			s.known = known
		} else {
			p.tokens = kept
		}
	}
	for len(s.pages) < pagesFor(end) {
		c.hold(slot, c.add(slot, nil))
	}
}

// note says what a slot holds as far as it is known: more than before.
func (c *cache) note(slot int, tokens []int32) {
	s := &c.slots[slot]
	for s.known < len(tokens) {
		n := s.known / pageTokens
		end := min(len(tokens), (n+1)*pageTokens)
		s.pages[n].tokens = append(s.pages[n].tokens, tokens[s.known:end]...)
		s.known = end
	}
}

func (c *cache) touch(slot int) {
	c.clock++
	c.slots[slot].used = c.clock
}

// release ends the use of a slot by a sequence; what it holds stays for others.
func (c *cache) release(slot int) {
	c.slots[slot].busy = false
	c.touch(slot)
	if !c.keep {
		_ = c.drop(slot) // best effort, as in forget
	}
}

// drop empties a slot.
func (c *cache) drop(slot int) error {
	c.leave(slot, 0)
	return c.store.Reset(slot)
}

// forget empties all slots, whose content is unknown.
func (c *cache) forget() {
	for i := range c.slots {
		c.slots[i].busy = false
		_ = c.drop(i) // best effort: a slot that nothing is known of is overwritten from its start
	}
}

// makeFree frees pages that no running sequence holds until as many are free as need says, and reports whether that
// was possible.
func (c *cache) makeFree(need func() int) (bool, error) {
	for c.free() < need() {
		if freed, err := c.evict(); !freed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// evict frees the last page of the slot that was not used for the longest time among those whose last page is nobody
// else's; if there is none, it takes from a slot the pages that it shares, so that they need no copies. It reports
// whether there was something to take.
func (c *cache) evict() (bool, error) {
	oldest, sharing := -1, -1
	for i := range c.slots {
		s := &c.slots[i]
		if s.busy || len(s.pages) == 0 {
			continue
		}
		if last := s.pages[len(s.pages)-1]; len(last.children) > 0 || c.busy(last) {
			if sharing < 0 || s.used < c.slots[sharing].used {
				sharing = i
			}
		} else if oldest < 0 || s.used < c.slots[oldest].used {
			oldest = i
		}
	}
	if oldest < 0 {
		if sharing < 0 {
			return false, nil
		}
		return true, c.drop(sharing)
	}
	last := c.slots[oldest].pages[len(c.slots[oldest].pages)-1]
	for _, i := range slices.Clone(last.slots) {
		if err := c.shorten(i); err != nil {
			return false, err
		}
	}
	return true, nil
}

// shorten takes the last page from a slot. Since a slot of the library can only be made longer, the rest moves to the
// spare one, and what was the slot is the spare one then. Where that would take memory, all of the slot goes.
func (c *cache) shorten(slot int) error {
	s := &c.slots[slot]
	count := len(s.pages) - 1
	if count == 0 || !c.shares {
		return c.drop(slot)
	}
	tokens := min(s.known, count*pageTokens)
	if err := c.store.Copy(slot, c.spare, tokens); err != nil {
		return err
	}
	used := s.used
	for _, p := range s.pages[:pagesFor(tokens)] {
		c.hold(c.spare, p)
	}
	to := &c.slots[c.spare]
	to.known, to.used = tokens, used
	c.spare = slot
	return c.drop(slot)
}
