package fault

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// parts is into how many the cases are divided that not every run covers.
const parts = 5

// ErrNoCase reports a part that selects nothing: a run of it would test nothing.
var ErrNoCase = errors.New("FAULT_PART selects no case")

// always are the cases that every run covers that is not asked for others: the steps at which most
// is at stake, of every service.
var always = []string{
	"backup-runner/claimed/backup", "backup-runner/reserved/backup", "backup-runner/part-uploaded/backup", "backup-runner/part-recorded/backup",
	"backup-runner/composition-fixed/backup", "backup-runner/tarball-composed/backup", "backup-runner/commit-marked/backup",
	"backup-runner/committed/backup", "backup-runner/before-terminal/backup", "backup-runner/snapshot-taken/snapshots", "backup-runner/suspended/suspended",
	"restore-runner/before-create@100/restore", "restore-runner/after-create@150/restore", "restore-runner/before-owner-patch/owners",
	"restore-runner/before-mark-back/paused", "restore-runner/decided/restore", "deletion/data-removed/deletion", "manifest-indexer/sync-created/sync",
	"queue-scheduler/before-swap/backup", "queue-scheduler/admitted/backup",
}

// Part is a choice of cases, of which there are several kinds: killed and paused processes,
// leaders, undisturbed runs, mutants. Its zero value is everything.
type Part struct {
	fraction int // 1 to parts; 0 for all
	fixed    bool
	pattern  *regexp.Regexp
}

// ParsePart reads the value of FAULT_PART: "all", "2/5" for the second fifth, or a regular
// expression for names. Without a value it is what a run of all tests covers: the cases of always,
// and of the others the fifth that the hash of the commit names.
func ParsePart(value, commit string) (Part, error) {
	n, of, fraction := strings.Cut(value, "/")
	switch {
	case value == "all":
		return Part{}, nil
	case value == "":
		h := fnv.New32a()
		_, _ = h.Write([]byte(commit))
		return Part{fraction: int(h.Sum32()%parts) + 1, fixed: true}, nil
	case fraction && of == strconv.Itoa(parts):
		chosen, err := strconv.Atoi(n)
		if err != nil || chosen < 1 || chosen > parts {
			return Part{}, fmt.Errorf("FAULT_PART: %q is not one of 1/%d to %d/%d", value, parts, parts, parts)
		}
		return Part{fraction: chosen}, nil
	}
	pattern, err := regexp.Compile(value)
	if err != nil {
		return Part{}, fmt.Errorf("FAULT_PART: %w", err)
	}
	return Part{pattern: pattern}, nil
}

// Select returns the cases of one kind that are part of the choice, by their names. There may be
// none.
func Select[T any](p Part, cases []T, name func(T) string) []T {
	var chosen []T
	others := 0
	for _, c := range cases {
		if p.fixed && slices.Contains(always, name(c)) {
			chosen = append(chosen, c)
			continue
		}
		others++
		switch {
		case p.pattern != nil && !p.pattern.MatchString(name(c)):
		case p.fraction != 0 && others%parts != p.fraction%parts:
		default:
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// Chosen are the cases of a run.
type Chosen struct {
	Undisturbed   []string
	Kills, Pauses []Case
	Leaders       []string
	Mutants       []Mutant
}

// Choose returns the cases of all kinds that a part selects; an error wrapping ErrNoCase when there
// are none.
func Choose(p Part) (*Chosen, error) {
	c := &Chosen{
		Undisturbed: Select(p, slices.Sorted(maps.Keys(Scenarios)), func(s string) string { return "undisturbed/" + s }),
		Kills:       Select(p, Matrix, Case.String),
		Pauses:      Select(p, Pauses, func(c Case) string { return "pause/" + c.String() }),
		Leaders:     Select(p, Admissions, func(point string) string { return "leader/" + point }),
		Mutants:     Select(p, Mutants, func(m Mutant) string { return "mutant/" + m.Name }),
	}
	if len(c.Undisturbed)+len(c.Kills)+len(c.Pauses)+len(c.Leaders)+len(c.Mutants) == 0 {
		return nil, fmt.Errorf("%w: %v", ErrNoCase, p.pattern)
	}
	return c, nil
}

// String returns what is chosen, with the value that chooses it again.
func (p Part) String() string {
	switch {
	case p.pattern != nil:
		return "FAULT_PART=" + p.pattern.String()
	case p.fraction == 0:
		return "FAULT_PART=all"
	case p.fixed:
		return fmt.Sprintf("%d cases that are always run, and of the others FAULT_PART=%d/%d, by the hash of the commit", len(always), p.fraction, parts)
	}
	return fmt.Sprintf("FAULT_PART=%d/%d", p.fraction, parts)
}
