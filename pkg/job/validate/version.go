package validate

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// RememberVersion reads the version of the API server until it answered once. An upgrade under a
// running service shows after its restart.
func RememberVersion(server discovery.ServerVersionInterface) func(context.Context) (*version.Info, error) {
	var mu sync.Mutex
	var known *version.Info
	return func(context.Context) (*version.Info, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != nil {
			return known, nil
		}
		info, err := server.ServerVersion()
		if err != nil {
			return nil, err
		}
		known = info
		return known, nil
	}
}
