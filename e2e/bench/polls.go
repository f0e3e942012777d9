package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pollCalls are what processes of the plugin noted, each in a file "parent-process" with a line for each
// call: the time in nanoseconds since 1970, a blank, and the operation.
type pollCalls struct {
	of    map[string][]time.Time // by operation, in no order
	files []string
}

func readPolls(dir string) (*pollCalls, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	p := &pollCalls{of: map[string][]time.Time{}}
	for _, e := range entries {
		p.files = append(p.files, e.Name())
		if err := p.readCalls(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pollCalls) readCalls(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was read
	for lines := bufio.NewScanner(file); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		var at int64
		var operation string
		if _, err := fmt.Sscan(lines.Text(), &at, &operation); err != nil {
			return fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		p.of[operation] = append(p.of[operation], time.Unix(0, at))
	}
}

// longestPause is the longest time between two calls about one operation: from the last one before began
// on, and for the last one the time until ended.
func (p *pollCalls) longestPause(began, ended time.Time) (longest time.Duration) {
	for _, times := range p.of {
		slices.SortFunc(times, time.Time.Compare)
		for i, at := range times {
			next := ended
			if i+1 < len(times) {
				next = times[i+1]
			}
			if next.After(began) && at.Before(ended) {
				longest = max(longest, next.Sub(at))
			}
		}
	}
	return longest
}

// countProcesses is in how many processes of one parent calls were made, of the parent with most.
func (p *pollCalls) countProcesses() (most int) {
	of := map[string]int{}
	for _, name := range p.files {
		parent, _, _ := strings.Cut(name, "-")
		of[parent]++
		most = max(most, of[parent])
	}
	return most
}
