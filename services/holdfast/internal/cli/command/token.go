package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/service/caller"
)

// dataDirVar names the data directory where --data-dir does not.
const dataDirVar = "HOLDFAST_DATA_DIR"

// bearerToken is what to present: that of the file given, or that of the `holdfast up` on this machine;
// empty for none. The latter goes only to a literal loopback address and in the clear: a name may
// lead to a port that another user listens on.
func (o *RemoteOptions) bearerToken(g *Global, secure bool) (string, error) {
	if o.TokenFile != "" {
		token, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return "", fmt.Errorf("--%s: %w", o.flagName("token-file"), err)
		}
		return strings.TrimSpace(string(token)), nil
	}
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return "", err
	}
	ip := net.ParseIP(host)
	here := !secure && ip != nil && ip.IsLoopback()
	dir, from := o.DataDir, "--data-dir"
	if dir == "" && g.Getenv != nil {
		dir, from = g.Getenv(dataDirVar), dataDirVar
	}
	switch {
	case dir != "" && !here && o.DataDir != "":
		return "", fmt.Errorf("--data-dir: its token is only for an address such as 127.0.0.1:7441 without TLS, and --%s is %s", o.flagName("address"), o.Address)
	case !here:
		return "", nil
	case dir != "":
		token, err := caller.ReadToken(caller.TokenPath(dir))
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		return token, nil
	}
	return notedToken(g, o.Address)
}

// notedToken is the token of the server that noted the address. One that ended without removing its note
// has left no token, or one that nothing accepts.
func notedToken(g *Global, address string) (string, error) {
	dir, err := DataDir(g.Home, address)
	if dir == "" || err != nil {
		return "", err
	}
	token, err := caller.ReadToken(caller.TokenPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return token, err
}

// bearerCredentials presents a token with every call. In the clear it goes no further than this machine, see
// Connect.
type bearerCredentials struct {
	token  string
	secure bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearerCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearerCredentials) RequireTransportSecurity() bool { return b.secure }
