package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// Name is that of the Node.
	Name = "node"
	// StorageClass is the default class of volumes.
	StorageClass = "directories"
	// Bucket is the name of the bucket in the S3 server.
	Bucket = "backups"
	// TestImage is an image with a shell and the usual commands, Debian's busybox.
	TestImage = "holdfast.test/busybox:1"
)

const (
	stateFile = "node.json"
	readyFile = "store.json"
	logFile   = "node.log"
)

// DriverDir returns the directory of the CSI driver of a cluster, in which it listens on its usual socket. csistorage
// gives the cluster what else CSI volumes take.
func DriverDir(dir string) string { return filepath.Join(dir, "csi") }

// ErrNotRunning means that no cluster runs in a directory.
var ErrNotRunning = errors.New("no cluster with a node runs there")

// clusterState is what Down and Import have to know of a running cluster.
type clusterState struct {
	Pid  int // its first process
	Link int // the number of its network device
}

// Store is the S3 server of a cluster. Pods and this machine reach it under the same URL.
type Store struct {
	Endpoint, Region, AccessKey, SecretKey string
}

func readState(dir string) (s clusterState, err error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: %s", ErrNotRunning, dir)
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the state of the cluster: %w", err)
	}
	return s, nil
}

// Mounts returns the mount points in the namespace of a cluster's node.
func Mounts(dir string) (points []string, err error) {
	text, err := readProc(dir, "mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the node's mounts: %w", err)
	}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	return points, nil
}

// readProc reads a file of /proc about the first process of a cluster.
func readProc(dir, name string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	s, err := readState(dir)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.Pid), name))
	return string(text), err
}

// isRunning reports whether the first process is there and still this cluster's: it has dir in its command
// line.
func (s clusterState) isRunning(dir string) bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Pid))
	return err == nil && strings.Contains(string(command), dir)
}

// ReadStore returns the S3 server of a cluster that is ready.
func ReadStore(dir string) (s Store, err error) {
	data, err := os.ReadFile(filepath.Join(dir, readyFile))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the store of the cluster: %w", err)
	}
	return s, nil
}

func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	// A reader finds all of it or nothing.
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
