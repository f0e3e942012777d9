package artifact

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// OpenFunc opens the store of a location by name; the handler closes it. An unknown location
// satisfies apierrors.IsNotFound.
type OpenFunc func(ctx context.Context, location string) (objectstore.Store, error)

// Handler serves GET and HEAD of URLs that signer made: the object's bytes as they are stored,
// without a Content-Encoding, or clients would unzip them twice. 403 for a bad or expired link, 404
// for an absent object, 502 when the store fails. Each object that is served is a line of the log.
// Mount it at PathPrefix.
func Handler(signer *Signer, open OpenFunc, log *slog.Logger) http.Handler {
	return &handler{signer: signer, open: open, log: log}
}

type handler struct {
	signer *Signer
	open   OpenFunc
	log    *slog.Logger
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	location, key, err := h.signer.Verify(r.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	store, err := h.open(r.Context(), location)
	if err != nil {
		h.writeError(w, r, location, key, err)
		return
	}
	defer func() { _ = store.Close() }()
	sent, err := serveObject(w, r, store, key)
	switch {
	case err == nil:
		h.log.Info("Served artifact", "location", location, "key", key, "peer", r.RemoteAddr)
	case sent:
		// The client finds by the announced length that the body is short.
		h.log.Warn("Failed to send the rest of the artifact; the client gets a short body", "location", location, "key", key, "error", err)
	default:
		h.writeError(w, r, location, key, err)
	}
}

// serveObject streams the object; sent reports whether an error came too late for another answer.
func serveObject(w http.ResponseWriter, r *http.Request, store objectstore.Store, key string) (sent bool, err error) {
	info, err := store.Stat(r.Context(), key)
	if err != nil {
		return false, err
	}
	var body io.ReadCloser = http.NoBody
	if r.Method == http.MethodGet {
		if body, err = store.GetRange(r.Context(), key, 0, info.Size); err != nil {
			return false, err
		}
	}
	defer func() { _ = body.Close() }()
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	_, err = io.Copy(w, body)
	return true, err
}

func (h *handler) writeError(w http.ResponseWriter, r *http.Request, location, key string, err error) {
	switch {
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, objectstore.ErrInvalidKey), apierrors.IsNotFound(err):
		http.Error(w, "no such artifact", http.StatusNotFound)
	case r.Context().Err() != nil:
	default:
		h.log.Error("Failed to serve artifact", "location", location, "key", key, "error", err)
		http.Error(w, "the object store cannot be read", http.StatusBadGateway)
	}
}
