package itemset

import (
	"os"
	"slices"
	"sync"
)

// SpoolFiles are the item spools of one run, by number. Safe for concurrent use.
type SpoolFiles struct {
	mu    sync.Mutex
	paths []string
}

// Add adds a file and returns its number.
func (f *SpoolFiles) Add(path string) (number uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths = append(f.paths, path)
	return uint32(len(f.paths) - 1) //nolint:gosec // far fewer files
}

// Path returns where a file is, "" for one that is gone.
func (f *SpoolFiles) Path(number uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paths[number]
}

// Drop removes a file that is gone from the set.
func (f *SpoolFiles) Drop(number uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[number] = ""
}

// All returns the files by their numbers, "" for those that are gone.
func (f *SpoolFiles) All() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.paths)
}

// Remove removes the files. It is best effort: the directory goes with the job.
func (f *SpoolFiles) Remove() {
	for _, path := range f.All() {
		if path != "" {
			_ = os.Remove(path)
		}
	}
}
