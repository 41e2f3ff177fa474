package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// library does with pages what native does: copies share them until somebody writes. A page is its tokens.
type library struct {
	t      *testing.T
	shares bool
	slots  [][]*[]int32
}

func (l *library) Reset(slot int) error {
	l.slots[slot] = nil
	return nil
}

func (l *library) Copy(from, to, tokens int) error {
	require.NotEqual(l.t, from, to)
	require.LessOrEqual(l.t, tokens, len(l.tokens(from)))
	l.slots[to] = slices.Clone(l.slots[from][:pagesFor(tokens)])
	if !l.shares {
		for i, p := range l.slots[to] {
			own := slices.Clone((*p)[:min(len(*p), tokens-i*pageTokens)])
			l.slots[to][i] = &own
		}
	}
	return nil
}

func (l *library) tokens(slot int) (all []int32) {
	for _, p := range l.slots[slot] {
		all = append(all, *p...)
	}
	return all
}

// pages is how many there are.
func (l *library) pages() int {
	all := map[*[]int32]int{}
	for _, s := range l.slots {
		for _, p := range s {
			all[p]++
		}
	}
	return len(all)
}

func (l *library) owners(p *[]int32) (n int) {
	for _, s := range l.slots {
		if slices.Contains(s, p) {
			n++
		}
	}
	return n
}

// write writes tokens from a position on, where a sequence ends.
func (l *library) write(slot, start int, tokens []int32) {
	s := &l.slots[slot]
	for i, id := range tokens {
		n := (start + i) / pageTokens
		if n == len(*s) {
			*s = append(*s, &[]int32{})
		}
		p := (*s)[n]
		if l.owners(p) > 1 {
			own := slices.Clone(*p)
			p = &own
			(*s)[n] = p
		}
		*p = append((*p)[:(start+i)%pageTokens], id)
	}
}

// Sequences come, grow and go in any order; what the cache says of the library is so, and it never has more pages than
// there may be.
func TestCacheKnowsTheLibrary(t *testing.T) {
	for _, shares := range []bool{true, false} {
		for seed := range uint64(15) {
			t.Run(fmt.Sprint(shares, seed), func(t *testing.T) { tryCache(t, shares, seed) })
		}
	}
}

func tryCache(t *testing.T, shares bool, seed uint64) {
	const slots, pages, atOnce = 9, 20, 4
	random := rand.New(rand.NewPCG(seed, 1))
	lib := &library{t: t, shares: shares, slots: make([][]*[]int32, slots)}
	c := newCache(lib, slots, pages, shares, seed%5 != 4)
	type sequence struct {
		slot, filled int
		tokens       []int32
	}
	var running []*sequence
	var told [][]int32 // whole sequences, which others continue
	reused := 0
	for range 400 {
		switch k := random.IntN(3); {
		case k == 0 && len(running) < atOnce && c.held() < pages/2:
			s := &sequence{}
			if len(told) > 0 {
				old := told[random.IntN(len(told))]
				s.tokens = slices.Clone(old[:random.IntN(len(old)+1)])
			}
			for range 1 + random.IntN(100) {
				s.tokens = append(s.tokens, int32(random.IntN(2)))
			}
			s.tokens = s.tokens[:min(len(s.tokens), 4*pageTokens)]
			var err error
			s.slot, s.filled, err = c.take(s.tokens, true)
			require.NoError(t, err)
			require.Less(t, s.filled, len(s.tokens))
			require.True(t, slices.Equal(s.tokens[:s.filled], lib.tokens(s.slot)[:s.filled]), "what is shared is right")
			reused += s.filled
			running = append(running, s)
		case k == 1 && len(running) > 0:
			s := running[random.IntN(len(running))]
			if s.filled == len(s.tokens) {
				s.tokens = append(s.tokens, int32(random.IntN(2)))
			}
			n := 1 + random.IntN(len(s.tokens)-s.filled)
			enough, err := c.makeFree(func() int { return c.lack(s.slot, s.filled, s.filled+n) })
			require.NoError(t, err)
			if !enough {
				continue // others hold too much
			}
			c.open(s.slot, s.filled, s.filled+n)
			lib.write(s.slot, s.filled, s.tokens[s.filled:s.filled+n])
			s.filled += n
			c.note(s.slot, s.tokens[:s.filled])
		case k == 2 && len(running) > 0:
			i := random.IntN(len(running))
			s := running[i]
			told = append(told, s.tokens)
			c.release(s.slot)
			running = slices.Delete(running, i, i+1)
		}
		require.LessOrEqual(t, c.used, pages)
		if shares {
			require.Equal(t, lib.pages(), c.used)
		}
		require.Empty(t, c.slots[c.spare].pages)
		for _, s := range running {
			require.True(t, slices.Equal(s.tokens[:s.filled], lib.tokens(s.slot)[:s.filled]), "nobody else wrote there")
		}
		for i := range c.slots {
			s := &c.slots[i]
			var known []int32
			for _, p := range s.pages {
				require.Contains(t, p.slots, i)
				known = append(known, p.tokens[:min(len(p.tokens), s.known-len(known))]...)
			}
			require.Equal(t, s.known, len(known))
			require.True(t, slices.Equal(known, lib.tokens(i)[:s.known]))
		}
	}
	if c.keep {
		require.Positive(t, reused)
	}
	for _, s := range running {
		c.release(s.slot)
	}
	require.Zero(t, c.held())
	all, err := c.makeFree(func() int { return pages })
	require.NoError(t, err)
	require.True(t, all, "pages of sequences that ended can all be had")
	require.Zero(t, c.used)
	require.Empty(t, c.root.children)
}

// The page that goes first is the last one of what was not used for the longest time.
func TestCacheForgetsTheOldestEnd(t *testing.T) {
	lib := &library{t: t, shares: true, slots: make([][]*[]int32, 8)}
	c := newCache(lib, 8, 6, true, true)
	fill := func(first int32, n int) []int32 {
		tokens := make([]int32, n)
		tokens[0] = first
		slot, filled, err := c.take(tokens, true)
		require.NoError(t, err)
		_, err = c.makeFree(func() int { return c.lack(slot, filled, n) })
		require.NoError(t, err)
		c.open(slot, filled, n)
		lib.write(slot, filled, tokens[filled:])
		c.note(slot, tokens)
		c.release(slot)
		return tokens
	}
	old, young := fill(1, 3*pageTokens), fill(2, 2*pageTokens)
	fill(3, 2*pageTokens) // one page more than there are
	reach := func(tokens []int32) int {
		_, n := c.root.longest(tokens)
		return n
	}
	require.Equal(t, 2*pageTokens, reach(old))
	require.Equal(t, 2*pageTokens, reach(young))
	fill(4, 3*pageTokens)
	require.Zero(t, reach(old))
	require.Equal(t, pageTokens, reach(young))
}
