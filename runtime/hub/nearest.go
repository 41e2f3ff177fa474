package hub

import (
	"cmp"
	"slices"
	"strings"

	"mlxcel/internal/spelling"
)

// maxNearest bounds how many names an error offers.
const maxNearest = 3

// nearest returns the candidates that differ from name in less than half of its letters, the nearest first. Case and the
// default organization do not count.
func nearest(name string, candidates []string) []string {
	plain := func(s string) string {
		return strings.TrimPrefix(strings.ToLower(s), DefaultOrg+"/")
	}
	type scored struct {
		name     string
		distance int
	}
	var near []scored
	wanted := plain(name)
	if len(wanted) > 256 {
		return nil
	}
	for _, c := range candidates {
		if d := spelling.Distance(wanted, plain(c)); 2*d < len(wanted) {
			near = append(near, scored{c, d})
		}
	}
	slices.SortStableFunc(near, func(a, b scored) int { return cmp.Compare(a.distance, b.distance) })
	var names []string
	for _, s := range near[:min(len(near), maxNearest)] {
		names = append(names, s.name)
	}
	return names
}
