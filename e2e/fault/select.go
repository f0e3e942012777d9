package fault

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// ErrNoCase reports a part that selects nothing: a run of it would test nothing.
var ErrNoCase = errors.New("FAULT_PART selects no case")

// Part is a choice of cases, of which there are several kinds: killed and paused processes, leaders, undisturbed runs, mutants. Its zero value
// is what `make test` runs: the cases that are marked for it.
type Part struct{ names *regexp.Regexp }

// ParsePart reads the value of FAULT_PART: "all", or a regular expression for names.
func ParsePart(value string) (Part, error) {
	switch value {
	case "":
		return Part{}, nil
	case "all":
		value = ""
	}
	names, err := regexp.Compile(value)
	if err != nil {
		return Part{}, fmt.Errorf("FAULT_PART: %w", err)
	}
	return Part{names}, nil
}

// Chosen are the cases of a run.
type Chosen struct {
	Undisturbed            []string
	Kills, Pauses, Leaders []Case
	Mutants                []Mutant
}

// Choose returns the cases of all kinds that a part selects; an error wrapping ErrNoCase when there are none.
func Choose(p Part) (*Chosen, error) {
	prefixed := func(prefix string) func(Case) (string, bool) {
		return func(c Case) (string, bool) { return prefix + c.String(), c.Always }
	}
	c := &Chosen{
		Undisturbed: selectCases(p, slices.Sorted(maps.Keys(Scenarios)), func(s string) (string, bool) { return "undisturbed/" + s, false }),
		Kills:       selectCases(p, Matrix, prefixed("")),
		Pauses:      selectCases(p, Pauses, prefixed("pause/")),
		Leaders:     selectCases(p, Admissions, prefixed("leader/")),
		Mutants:     selectCases(p, Mutants, func(m Mutant) (string, bool) { return "mutant/" + m.Name, m.Case.Always }),
	}
	if c.countCases() == 0 {
		return nil, fmt.Errorf("%w: %v", ErrNoCase, p.names)
	}
	return c, nil
}

// selectCases returns the cases of one kind that are part of the choice. describe returns the name of a case and whether it is always run.
func selectCases[T any](p Part, cases []T, describe func(T) (string, bool)) (chosen []T) {
	for _, c := range cases {
		name, always := describe(c)
		if p.names == nil && always || p.names != nil && p.names.MatchString(name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func (c *Chosen) countCases() int {
	return len(c.Undisturbed) + len(c.Kills) + len(c.Pauses) + len(c.Leaders) + len(c.Mutants)
}
