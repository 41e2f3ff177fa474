package cli

import (
	"fmt"

	"mlxcel/internal/spelling"
)

// DidYouMean returns a question with the name that is nearest to a mistyped one, put behind prefix, or "" if none is
// near.
func DidYouMean(typed string, names []string, prefix string) string {
	best, least := "", min(2, len(typed)/2)+1
	for _, name := range names {
		if d := spelling.Distance(typed, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s%s?", prefix, best)
}
