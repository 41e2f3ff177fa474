package hub

import (
	"encoding/json"
	"time"
)

// EventKind says what an Event tells.
type EventKind string

// The kinds of events.
const (
	EventFile     EventKind = "file"     // File is not here and will be fetched; Size
	EventResume   EventKind = "resume"   // Bytes of File are here from an earlier time
	EventProgress EventKind = "progress" // Bytes more of File are here, or less where it starts over
	EventWait     EventKind = "wait"     // another process is fetching File
	EventDone     EventKind = "done"     // File is here, whole and checked; Size
	EventRetry    EventKind = "retry"    // a request failed with Err, and is made again after Wait
)

// Event tells how a download goes on.
type Event struct {
	Kind  EventKind
	File  string // as the Hub calls it
	Size  int64  // bytes
	Bytes int64
	Wait  time.Duration
	Err   error
}

// MarshalJSON writes the fields that the kind has; the wait is in seconds.
func (e Event) MarshalJSON() ([]byte, error) {
	var o struct {
		Kind  EventKind `json:"event"`
		File  string    `json:"file,omitempty"`
		Size  *int64    `json:"size,omitempty"`
		Bytes *int64    `json:"bytes,omitempty"`
		Wait  float64   `json:"wait_s,omitempty"`
		Err   string    `json:"error,omitempty"`
	}
	o.Kind, o.File, o.Wait = e.Kind, e.File, e.Wait.Seconds()
	if e.Kind == EventFile || e.Kind == EventDone {
		o.Size = &e.Size
	}
	if e.Kind == EventResume || e.Kind == EventProgress {
		o.Bytes = &e.Bytes
	}
	if e.Err != nil {
		o.Err = e.Err.Error()
	}
	return json.Marshal(o)
}
