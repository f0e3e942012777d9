package partwriter

import "sync"

// Counter counts the objects of a running backup. The zero value is ready; safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	done   int
	errors int
	warned int
	held   int // objects that wait for their actions
	ahead  map[string]int64
}

// Counts is one reading of a Counter.
type Counts struct{ Items, Total, Warnings, Errors int }

// Read returns the counts now. Total grows while lists are read: it has only lists already begun.
func (p *Counter) Read() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := p.done + p.held
	for _, n := range p.ahead {
		total += int(n)
	}
	return Counts{Items: p.done, Total: total, Warnings: p.warned, Errors: p.errors}
}

// Page records a verified page of a unit and how many objects may follow.
func (p *Counter) Page(unit string, items int, remaining int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += items
	if p.ahead == nil {
		p.ahead = map[string]int64{}
	}
	if remaining > 0 {
		p.ahead[unit] = remaining
	} else {
		delete(p.ahead, unit)
	}
}

// Hold records that objects wait for their actions, or with a negative number that they do no
// longer.
func (p *Counter) Hold(waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += waiting
}

// Acted records an object that was processed.
func (p *Counter) Acted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// Restore adds what an earlier holder had stored.
func (p *Counter) Restore(items, warnings, errors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += items
	p.warned += warnings
	p.errors += errors
}

// Noted records log entries that count.
func (p *Counter) Noted(warnings, errors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned += warnings
	p.errors += errors
}
