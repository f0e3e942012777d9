package chart

import (
	"fmt"
	"slices"
)

// Exception is why no request has to use a grant.
type Exception struct {
	Why string
	// Sometimes is set where it depends on chance whether one does; otherwise none may.
	Sometimes bool
}

// Unused returns a sentence for each grant that no request used and that is not excepted, for each
// exception of a grant that a request used and none may, and for each of a grant that there is not.
// The keys of exceptions are grants as String has them.
func Unused(grants []Grant, requests []Request, exceptions map[string]Exception) (findings []string) {
	left := map[string]bool{}
	for grant := range exceptions {
		left[grant] = true
	}
	for _, g := range grants {
		used, excepted := slices.ContainsFunc(requests, g.UsedBy), left[g.String()]
		delete(left, g.String())
		switch {
		case !used && !excepted:
			findings = append(findings, fmt.Sprintf("no suite uses %s", g))
		case used && excepted && !exceptions[g.String()].Sometimes:
			findings = append(findings, fmt.Sprintf("a suite uses %s, which is an exception", g))
		}
	}
	for grant := range left {
		findings = append(findings, fmt.Sprintf("the chart does not grant %s, which is an exception", grant))
	}
	slices.Sort(findings)
	return findings
}
