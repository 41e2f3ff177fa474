package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// counter is a family of numbers that only grow, by the values of its labels.
type counter struct {
	labels []string

	mu     sync.Mutex
	values map[string]float64 // by the labels as they are written
}

// add adds n to the number of the given label values, which must be few: they come from the server, not from clients.
func (c *counter) add(n float64, values ...string) {
	pairs := make([]string, len(values))
	for i, v := range values {
		pairs[i] = label(c.labels[i], v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string]float64{}
	}
	c.values[strings.Join(pairs, ",")] += n
}

func (c *counter) write(e *exposition, help string, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	labels := sortedKeys(c.values)
	if len(c.labels) == 0 && len(labels) == 0 {
		labels = []string{""} // a counter without labels is there from the start
	}
	for _, name := range names {
		e.head(name, "counter", help)
		for _, l := range labels {
			e.line(name, "", c.values[l], l)
		}
	}
}

// histogram counts observations by upper bounds.
type histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64 // by bound, the last one without any
	sum    float64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v) // the first bound that is at least v
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += v
}

func (h *histogram) write(e *exposition, help string, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		e.head(name, "histogram", help)
		var total uint64
		for i, n := range h.counts {
			total += n
			bound := "+Inf"
			if i < len(h.bounds) {
				bound = formatFloat(h.bounds[i])
			}
			e.line(name, "_bucket", float64(total), label("le", bound))
		}
		e.line(name, "_sum", h.sum)
		e.line(name, "_count", float64(total))
	}
}

// exposition is a text in Prometheus's form that is being written.
type exposition struct {
	text  strings.Builder
	model string
}

// figure writes a family of one number under each of its names.
func (e *exposition) figure(kind, help string, value float64, names ...string) {
	for _, name := range names {
		e.head(name, kind, help)
		e.line(name, "", value)
	}
}

func (e *exposition) head(name, kind, help string) {
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// line writes a number. Under vLLM's names it has the label that dashboards choose the model by.
func (e *exposition) line(name, suffix string, value float64, labels ...string) {
	if strings.HasPrefix(name, "vllm:") {
		labels = append([]string{label("model_name", e.model)}, labels...)
	}
	all := strings.Trim(strings.Join(labels, ","), ",")
	if all != "" {
		all = "{" + all + "}"
	}
	fmt.Fprintf(&e.text, "%s%s%s %s\n", name, suffix, all, formatFloat(value))
}

var labelEscapes = strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n")

func label(name, value string) string { return name + `="` + labelEscapes.Replace(value) + `"` }

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
