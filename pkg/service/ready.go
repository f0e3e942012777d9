package service

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// readiness is a list of named conditions. It is safe for concurrent use.
type readiness struct {
	mu       sync.Mutex
	checks   []readyCondition
	stopping bool
}

type readyCondition struct {
	name string
	met  func() bool
}

func (r *readiness) addCondition(name string, met func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, readyCondition{name, met})
}

// stopReadiness makes the service unready for good.
func (r *readiness) stopReadiness() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// missingConditions names what is not there yet; empty means ready.
func (r *readiness) missingConditions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return []string{"stopping"}
	}
	var names []string
	for _, c := range r.checks {
		if !c.met() {
			names = append(names, c.name)
		}
	}
	return names
}

// ServeHTTP answers /readyz: 200 when ready, else 503 with the names of what is missing.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	missing := r.missingConditions()
	if len(missing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, "not ready: "+strings.Join(missing, ", "))
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
