package hub

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultOrg is the organization of a name that has none.
const DefaultOrg = "mlx-community"

// Reference is what a name stands for: a model of the Hub and, where it has several GGUF files, one of them.
type Reference struct {
	Model string // "ORG/NAME"
	File  string // a part of the GGUF file's name, as in "Q4_K_M"; "" for the only one
}

// String returns a name that ParseReference understands.
func (r Reference) String() string {
	if r.File == "" {
		return r.Model
	}
	return r.Model + ":" + r.File
}

// NameError is a name that stands for nothing.
type NameError struct {
	Name    string
	Reason  string
	Nearest []string // names that do stand for something
}

func (e *NameError) Error() string {
	text := fmt.Sprintf("%q %s", e.Name, e.Reason)
	if len(e.Nearest) > 0 {
		text += "; near it are " + strings.Join(e.Nearest, ", ")
	}
	return text
}

var (
	modelName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,96}/[A-Za-z0-9._-]{1,96}$`)
	filePart  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
)

// ParseReference understands an alias, ORG/NAME, a bare NAME of the organization mlx-community, and ORG/NAME:PART,
// which chooses the GGUF file with PART in its name. The error is a *NameError.
func ParseReference(name string) (Reference, error) {
	if model, ok := aliases[strings.ToLower(name)]; ok {
		return Reference{Model: model}, nil
	}
	model, file, chosen := strings.Cut(name, ":")
	switch {
	case strings.Contains(name, "://"):
		return Reference{}, &NameError{Name: name, Reason: "is an address: write ORG/NAME, as in mlx-community/Qwen3-0.6B-4bit"}
	case chosen && !strings.Contains(model, "/"): // looks like an alias
		return Reference{}, &NameError{Name: name, Reason: "is no known short name", Nearest: nearest(name, AliasNames())}
	case !strings.Contains(model, "/"):
		model = DefaultOrg + "/" + model
	}
	if !validModel(model) || chosen && !filePart.MatchString(file) {
		return Reference{}, &NameError{
			Name:    name,
			Reason:  `is not the name of a model: want ORG/NAME of letters, digits, ".", "_" and single "-"`,
			Nearest: nearest(name, AliasNames()),
		}
	}
	return Reference{model, file}, nil
}

// validModel keeps to the Hub's own rules, which make the name of the cache folder unambiguous and harmless.
func validModel(model string) bool {
	if len(model) > 96 || !modelName.MatchString(model) || strings.Contains(model, "--") || strings.Contains(model, "..") {
		return false
	}
	for part := range strings.SplitSeq(model, "/") {
		if strings.Trim(part, ".-") != part || strings.HasSuffix(strings.ToLower(part), ".git") {
			return false
		}
	}
	return true
}

var (
	revisionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}$`)
	commitHash   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// checkRevision allows branches, tags, "refs/pr/1" and commits, as far as they are paths that stay below refs.
func checkRevision(revision string) error {
	if !revisionName.MatchString(revision) || checkPath(revision) != nil {
		return fmt.Errorf("%q is not a revision: want a branch, a tag or a commit", revision)
	}
	return nil
}
