package fault

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// parts is into how many a list of cases is divided, so that a run of all tests stays short: another one each day.
const parts = 5

// Select returns the cases of a part: "all", "2/5" for the second fifth, the fifth of the day when empty, or the cases whose names match a regular
// expression. There may be none.
func Select[T any](cases []T, name func(T) string, part string, now time.Time) ([]T, error) {
	keep := func(int, T) bool { return true }
	n, of, fraction := strings.Cut(part, "/")
	switch {
	case part == "all":
	case part == "":
		today := int(now.UTC().Unix()/(24*60*60)) % parts
		keep = func(i int, _ T) bool { return i%parts == today }
	case fraction && of == strconv.Itoa(parts):
		chosen, err := strconv.Atoi(n)
		if err != nil || chosen < 1 || chosen > parts {
			return nil, fmt.Errorf("FAULT_PART: %q is not one of 1/%d to %d/%d", part, parts, parts, parts)
		}
		keep = func(i int, _ T) bool { return i%parts == chosen-1 }
	default:
		pattern, err := regexp.Compile(part)
		if err != nil {
			return nil, fmt.Errorf("FAULT_PART: %w", err)
		}
		keep = func(_ int, c T) bool { return pattern.MatchString(name(c)) }
	}
	var chosen []T
	for i, c := range cases {
		if keep(i, c) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
