package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/service/private"
)

// maxInstances bounds how many earlier instances of a service are remembered; their Leases are long
// expired by the time they fall off the list.
const maxInstances = 256

// recordInstances records the new instances of a service and returns the earlier ones. While the data
// directory's lock is held those have ended, so that their claims can be taken over at once instead
// of after the claim timeout.
func (d *dataDir) recordInstances(service string, instances []string) (predecessors []string, err error) {
	path := filepath.Join(d.path, "instances", service)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	predecessors = strings.Fields(string(data))
	all := append(append([]string{}, predecessors...), instances...)
	all = all[max(0, len(all)-maxInstances):]
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	// The file is durable before the instances in it claim anything.
	if err := private.WriteFile(path, []byte(strings.Join(all, "\n")+"\n")); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return predecessors, nil
}
