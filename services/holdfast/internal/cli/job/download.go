package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzip"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// ErrNotFound means that the file does not exist in the object store.
var ErrNotFound = errors.New("the object store has no such file")

const (
	pollEvery   = 50 * time.Millisecond
	maxNameHead = 253 - 37 // room for the UUID that makes a request's name unique
	maxMessage  = 1 << 10  // bytes of an error answer worth showing
)

// DownloadOptions say how files are fetched.
type DownloadOptions struct {
	// Timeout bounds the wait for the URL and for the first byte.
	Timeout time.Duration
	// CACertFile is a PEM file; empty means that of the storage location.
	CACertFile string
	// InsecureSkipTLSVerify accepts any certificate.
	InsecureSkipTLSVerify bool
}

// BindFlags adds the flags of every command that fetches files.
func (o *DownloadOptions) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait for the server's answer")
	fs.StringVar(&o.CACertFile, "cacert", o.CACertFile, "PEM file to check the object store's certificate with")
	fs.BoolVar(&o.InsecureSkipTLSVerify, "insecure-skip-tls-verify", o.InsecureSkipTLSVerify, "do not check the object store's certificate")
}

// Fetcher fetches files of jobs through one cluster, as every client of the velero.io API does: a
// DownloadRequest is answered with a signed URL, which is fetched without credentials.
type Fetcher struct {
	Client    client.Client
	Clock     clock.WithTicker
	Namespace string
	Options   DownloadOptions
}

// Open returns the content of a file, decompressed unless it is a tarball. The location is the
// storage location the file lies in. ErrNotFound means that the server answered and the file does
// not exist. Errors never show the URL: it is as good as a password until it expires.
func (f *Fetcher) Open(ctx context.Context, kind velerov1.DownloadTargetKind, name, location string) (io.ReadCloser, error) {
	address, err := f.requestURL(ctx, kind, name)
	if err != nil {
		return nil, fmt.Errorf("ask for %s of %q: %w", kind, name, err)
	}
	body, err := f.getURL(ctx, address, location)
	if err != nil {
		return nil, fmt.Errorf("fetch %s of %q: %w", kind, name, err)
	}
	if kind == velerov1.DownloadTargetKindBackupContents {
		return body, nil
	}
	plain, err := gzip.NewReader(body)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("decompress %s of %q: %w", kind, name, err), body.Close())
	}
	return &unzippedBody{Reader: plain, body: body}, nil
}

// requestURL creates a DownloadRequest and waits for its URL. The server deletes requests when they
// expire.
func (f *Fetcher) requestURL(ctx context.Context, kind velerov1.DownloadTargetKind, name string) (string, error) {
	if f.Options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.Options.Timeout)
		defer cancel()
	}
	request := &velerov1.DownloadRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: requestName(name)},
		Spec:       velerov1.DownloadRequestSpec{Target: velerov1.DownloadTarget{Kind: kind, Name: name}},
	}
	if err := f.Client.Create(ctx, request); err != nil {
		return "", err
	}
	ticker := f.Clock.NewTicker(pollEvery)
	defer ticker.Stop()
	for request.Status.DownloadURL == "" {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", fmt.Errorf("the server did not answer within %s; is it running?", f.Options.Timeout)
			}
			return "", context.Cause(ctx)
		case <-ticker.C():
		}
		if err := f.Client.Get(ctx, client.ObjectKeyFromObject(request), request); err != nil && ctx.Err() == nil {
			return "", err
		}
	}
	return request.Status.DownloadURL, nil
}

// requestName is unique and, like Velero's, contains what is asked for.
func requestName(name string) string {
	head := name[:min(len(name), maxNameHead)]
	return strings.TrimRight(head, ".-") + "-" + uuid.NewString()
}

func (f *Fetcher) getURL(ctx context.Context, address, location string) (io.ReadCloser, error) {
	transport, err := f.newTransport(ctx, location)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, withoutURL(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }() // the answer is an error already
	if response.StatusCode == http.StatusNotFound {
		return nil, ErrNotFound
	}
	message, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
	if err != nil {
		message = []byte(err.Error())
	}
	return nil, fmt.Errorf("the object store answered %s: %s", response.Status, strings.TrimSpace(string(message)))
}

// withoutURL strips the address from an error of net/http.
func withoutURL(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// unzippedBody closes both the decompressor and what it reads from.
type unzippedBody struct {
	*gzip.Reader
	body io.Closer
}

// Close ends the download.
func (u *unzippedBody) Close() error { return errors.Join(u.Reader.Close(), u.body.Close()) }
