package messaging

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
)

// ErrInstallation reports that it is not known yet what a client works for.
var ErrInstallation = errors.New("the installation is not known")

var installationName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// installation is the name that was given once.
type installation struct {
	mu   sync.Mutex
	name string
}

// installationToken returns the token of subjects that keeps installations on one account apart: empty,
// or the name and a dot.
func (c *Client) installationToken(ctx context.Context) (string, error) {
	if c.cfg.Installation == nil {
		return "", nil
	}
	c.name.mu.Lock()
	defer c.name.mu.Unlock()
	if c.name.name == "" {
		name, err := c.cfg.Installation(ctx)
		if err == nil && !installationName.MatchString(name) {
			err = fmt.Errorf("%q is not a name", name)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrInstallation, err)
		}
		c.name.name = name
	}
	return c.name.name + ".", nil
}
