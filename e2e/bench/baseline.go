package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// pageSizes are tried for the raw list; the fastest counts.
var pageSizes = []int{500, 2000}

// rawList pages through the ConfigMaps of a namespace without looking at them, and returns the
// fastest wall time over the page sizes.
func rawList(ctx context.Context, config *rest.Config, namespace string) (time.Duration, error) {
	best := time.Duration(0)
	for _, size := range pageSizes {
		took, err := rawListOnce(ctx, config, namespace, size)
		if err != nil {
			return 0, err
		}
		best = shorterTime(best, took)
	}
	return best, nil
}

func rawListOnce(ctx context.Context, config *rest.Config, namespace string, size int) (time.Duration, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	next := ""
	for {
		query := url.Values{"limit": {strconv.Itoa(size)}}
		if next != "" {
			query.Set("continue", next)
		}
		page, err := getPage(ctx, client, config.Host+"/api/v1/namespaces/"+namespace+"/configmaps?"+query.Encode())
		if err != nil {
			return 0, err
		}
		if next = page; next == "" {
			return time.Since(began), nil
		}
	}
}

// headBytes of a page hold its continue token: the API server writes the metadata of core lists
// before the items.
const headBytes = 4096

// getPage reads a page to its end and returns its continue token.
func getPage(ctx context.Context, client *http.Client, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("list: %s", answer.Status)
	}
	head := make([]byte, headBytes)
	n, err := io.ReadFull(answer.Body, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return "", err
	}
	return continueToken(head[:n])
}

// continueToken finds metadata.continue in the head of a list.
func continueToken(head []byte) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(head))
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", fmt.Errorf("no list metadata at the head of the page: %w", err)
		}
		if token == "metadata" {
			var metadata struct {
				Continue string `json:"continue"`
			}
			err := decoder.Decode(&metadata)
			return metadata.Continue, err
		}
	}
}
