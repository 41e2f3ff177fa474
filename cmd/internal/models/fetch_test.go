package models

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/hub"
)

func TestTally(t *testing.T) {
	var out bytes.Buffer
	v := newLineView(func(line string) { out.WriteString(line + "\n") })
	c := &tally{files: map[string]*fileTally{}}
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	v.last = now
	happen := func(e hub.Event) {
		c.count(e, now)
		v.event(e, c)
	}
	happen(hub.Event{Kind: hub.EventFile, File: "a", Size: 1000e6})
	happen(hub.Event{Kind: hub.EventFile, File: "b", Size: 500e6})
	happen(hub.Event{Kind: hub.EventFile, File: "c", Size: 100e6})
	happen(hub.Event{Kind: hub.EventResume, File: "a", Bytes: 200e6})
	require.Empty(t, c.pace(), "what was here came at no speed")
	for range 12 {
		now = now.Add(time.Second)
		happen(hub.Event{Kind: hub.EventProgress, File: "a", Bytes: 50e6})
	}
	require.Equal(t, "450 MB of 1.60 GB, 50 MB/s, 23s left\n700 MB of 1.60 GB, 50 MB/s, 18s left\n", out.String())
	require.InDelta(t, 50e6, c.speed(), 1)

	happen(hub.Event{Kind: hub.EventDone, File: "c"}) // from elsewhere
	require.Equal(t, int64(900e6), c.bytes)
	require.Empty(t, c.pace())
	happen(hub.Event{Kind: hub.EventProgress, File: "a", Bytes: -800e6}) // begun anew
	require.Equal(t, "100 MB of 1.60 GB", c.progress())
	out.Reset()
	happen(hub.Event{Kind: hub.EventRetry, Err: errors.New("host answers 503"), Wait: 1500 * time.Millisecond})
	require.Equal(t, "host answers 503; trying again in 1.5 s\n", out.String())
}

func TestShorten(t *testing.T) {
	require.Equal(t, "model.safetensors", shorten("model.safetensors"))
	long := shorten("a-very-long-name-of-a-model-00001-of-00002.safetensors")
	require.Len(t, []rune(long), nameCols-1)
	require.Regexp(t, `^a-very-long.*….*safetensors$`, long)
}
