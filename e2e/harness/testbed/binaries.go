package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// AssetsVariable names the environment variable that points at a directory of control plane
// binaries; it wins over .tools/bin. It is the variable that controller-runtime's envtest reads.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// ErrMissingBinary reports that a binary of the test bed is not on this machine.
var ErrMissingBinary = errors.New("binary of the test bed is missing")

// Binary returns the path of a binary of the test bed (etcd, kube-apiserver,
// kube-controller-manager, kubectl, versitygw, grpcurl). KUBEBUILDER_ASSETS is searched first when
// set, then .tools/bin of the repository. The error wraps ErrMissingBinary and names the
// directories.
func Binary(name string) (string, error) {
	var tried []string
	if dir := os.Getenv(AssetsVariable); dir != "" {
		tried = append(tried, filepath.Join(dir, name))
	}
	if root, err := RepositoryRoot(); err == nil {
		tried = append(tried, filepath.Join(root, ".tools", "bin", name))
	}
	for _, path := range tried {
		if isExecutable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s (looked at %v); run `make tools`", ErrMissingBinary, name, tried)
}

// Product returns the path of one of this repository's own binaries in bin/, as `make build` leaves
// it there.
func Product(name string) (string, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if !isExecutable(path) {
		return "", fmt.Errorf("%w: %s; run `make build`", ErrMissingBinary, path)
	}
	return path, nil
}

// RepositoryRoot returns the directory that holds go.work, searched upwards from the working
// directory and then from this source file.
func RepositoryRoot() (string, error) {
	starts := make([]string, 0, 2)
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for {
			if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", fmt.Errorf("no go.work above %v: not inside the repository", starts)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
