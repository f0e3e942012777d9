package job

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// newTransport trusts the system's authorities and those of --cacert, or else those of the storage
// location. Nothing is decompressed on the way: files are gzip themselves.
func (f *Fetcher) newTransport(ctx context.Context, location string) (*http.Transport, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: f.Options.InsecureSkipTLSVerify, //nolint:gosec // the user asked for it by flag
	}
	bundle, err := f.readAuthorities(ctx, location)
	if err != nil {
		return nil, err
	}
	if len(bundle) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(bundle) {
			return nil, errors.New("no certificate in the PEM bundle of --cacert or of the storage location")
		}
		config.RootCAs = pool
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       config,
		DisableCompression:    true,
		DisableKeepAlives:     true,
		ResponseHeaderTimeout: f.Options.Timeout,
	}, nil
}

func (f *Fetcher) readAuthorities(ctx context.Context, location string) ([]byte, error) {
	if f.Options.CACertFile != "" {
		bundle, err := os.ReadFile(f.Options.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		return bundle, nil
	}
	if location == "" {
		return nil, nil
	}
	bsl := &velerov1.BackupStorageLocation{}
	err := f.Client.Get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: location}, bsl)
	if apierrors.IsNotFound(err) {
		return nil, nil // the URL may still work without its authorities
	}
	if err != nil {
		return nil, fmt.Errorf("read storage location %q: %w", location, err)
	}
	store := bsl.Spec.ObjectStorage
	switch {
	case store == nil:
		return nil, nil
	case store.CACertRef != nil:
		return f.readSecret(ctx, store.CACertRef)
	default:
		return store.CACert, nil
	}
}

func (f *Fetcher) readSecret(ctx context.Context, ref *corev1.SecretKeySelector) ([]byte, error) {
	secret := &corev1.Secret{}
	if err := f.Client.Get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: ref.Name}, secret); err != nil {
		return nil, fmt.Errorf("read secret %q of caCertRef: %w", ref.Name, err)
	}
	return secret.Data[ref.Key], nil
}
