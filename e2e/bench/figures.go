package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Figures collects measured numbers by name. It is safe for concurrent use.
type Figures struct {
	Log io.Writer // each figure is printed here as it is measured

	mu     sync.Mutex
	values map[string]float64
}

// Set records one figure.
func (f *Figures) Set(name string, value float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.values == nil {
		f.values = map[string]float64{}
	}
	f.values[name] = value
	_, _ = fmt.Fprintf(f.Log, "  %-34s %10.3f\n", name, value)
}

// Write stores the figures as one flat JSON object, names in order.
func (f *Figures) Write(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := json.MarshalIndent(f.values, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
