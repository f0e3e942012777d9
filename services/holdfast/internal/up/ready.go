package up

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	// lookEvery is how often readiness is checked, sayEvery how often what is still waited for is
	// printed.
	lookEvery = 50 * time.Millisecond
	sayEvery  = 10 * time.Second
	// lookLimit bounds one look.
	lookLimit = 5 * time.Second
)

// ReadyLine is printed once everything serves.
const ReadyLine = "holdfast is ready"

// announceReady prints ReadyLine once every service answers /readyz and the default location is
// Available; until then it prints what is missing now and then.
func announceReady(ctx context.Context, cfg Config, members []serviceMember, c client.Reader) error {
	ticker := cfg.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	said := cfg.Clock.Now()
	for {
		missing := waitingFor(ctx, cfg, members, c)
		if len(missing) == 0 {
			_, err := fmt.Fprintln(cfg.Out, ReadyLine)
			return err
		}
		if cfg.Clock.Since(said) >= sayEvery {
			said = cfg.Clock.Now()
			cfg.Log.Info("Services are not ready yet", "waitingFor", missing)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// waitingFor names what is not ready.
func waitingFor(ctx context.Context, cfg Config, members []serviceMember, c client.Reader) []string {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	var missing []string
	for _, m := range members {
		if !isReady(ctx, m.httpAddress) {
			missing = append(missing, m.label)
		}
	}
	if len(missing) > 0 {
		return missing
	}
	return locationsWaitedFor(ctx, cfg.Namespace, c)
}

// isReady reads the readiness of a service, which may not listen yet.
func isReady(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// locationsWaitedFor names the default location while it is not Available. A namespace without a
// default location is ready: its owner configured it so.
func locationsWaitedFor(ctx context.Context, namespace string, c client.Reader) []string {
	list := &velerov1.BackupStorageLocationList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return []string{"storage locations: " + err.Error()}
	}
	at := slices.IndexFunc(list.Items, func(l velerov1.BackupStorageLocation) bool { return l.Spec.Default })
	if at < 0 || list.Items[at].Status.Phase == velerov1.LocationPhaseAvailable {
		return nil
	}
	location := &list.Items[at]
	return []string{strings.TrimSpace("storage location " + location.Name + " " + location.Status.Message)}
}
