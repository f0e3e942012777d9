// Package debug collects what is needed to find out what is wrong with an installation into one
// archive, without secrets. What cannot be collected is listed in it.
package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config is what is collected and with what. All fields are required.
type Config struct {
	Namespace string
	Clock     clock.PassiveClock
	Reader    client.Reader
	// Logs returns the log of a container, or that of the container before it.
	Logs func(ctx context.Context, pod, container string, previous bool) (io.ReadCloser, error)
	// Values are further parts of the bundle by the names of their files: each is written as JSON
	// after it was scrubbed.
	Values map[string]func(context.Context) (any, error)
	// Metrics are host:port of HTTP by service.
	Metrics map[string]string
	// Timeout bounds each part.
	Timeout time.Duration
}

// Summary is what a bundle has.
type Summary struct {
	Files int
	// Problems are what is missing, and why.
	Problems []string
}

// WriteArchive writes a bundle as tar.gz. An error is one of w, or the end of ctx: everything else that
// fails is a problem, and in the file problems.txt.
func WriteArchive(ctx context.Context, w io.Writer, cfg Config) (Summary, error) {
	a := newArchive(w, cfg.Clock)
	for _, name := range slices.Sorted(maps.Keys(cfg.Values)) {
		a.runPart(ctx, name, cfg.Timeout, func(ctx context.Context) error { return writeValue(ctx, a, name, cfg.Values[name]) })
	}
	writeObjects(ctx, a, cfg)
	writeLogs(ctx, a, cfg)
	for _, service := range slices.Sorted(maps.Keys(cfg.Metrics)) {
		name := "metrics/" + service + ".txt"
		a.runPart(ctx, name, cfg.Timeout, func(ctx context.Context) error { return writeMetrics(ctx, a, name, cfg.Metrics[service]) })
	}
	if err := ctx.Err(); err != nil {
		return Summary{}, err
	}
	if a.err == nil {
		a.writeFile("problems.txt", []byte(strings.Join(append(slices.Clone(a.problems), ""), "\n")))
	}
	return Summary{Files: a.files, Problems: a.problems}, a.close()
}

// writeValue writes what get returns as JSON.
func writeValue(ctx context.Context, a *bundleArchive, name string, get func(context.Context) (any, error)) error {
	v, err := get(ctx)
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tree := map[string]any{}
	if err := json.Unmarshal(data, &tree); err != nil {
		return err
	}
	scrubObject(tree)
	if data, err = json.MarshalIndent(tree, "", "  "); err == nil {
		a.addFile(name, append(data, '\n'))
	}
	return err
}

// errStatus is an answer over HTTP other than 200.
var errStatus = errors.New("unexpected HTTP status")

func writeMetrics(ctx context.Context, a *bundleArchive, name, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errStatus, response.Status)
	}
	// A byte more shows that something was cut.
	data, err := io.ReadAll(io.LimitReader(response.Body, fileBytes+1))
	cut := len(data) > fileBytes
	if cut || err != nil {
		data = data[:bytes.LastIndexByte(data[:min(len(data), fileBytes)], '\n')+1]
	}
	if cut {
		err = errors.Join(err, fmt.Errorf("only the first %d bytes are in it", len(data)))
	}
	if len(data) > 0 {
		a.addFile(name, []byte(scrubText(string(data))))
	}
	return err
}
