package location

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/s3store"
)

// defaultProfile is the profile used when config names none.
const defaultProfile = "default"

func (o *Opener) openS3(ctx context.Context, loc *velerov1.BackupStorageLocation, p bucketPlace) (*s3store.Store, error) {
	config, err := s3store.ParseConfig(loc.Spec.Config)
	if err != nil {
		return nil, errgrpc.Field("spec.config", "%v", err)
	}
	config.Bucket = p.bucket
	if config.CABundle, err = o.caBundle(ctx, loc.Spec.ObjectStorage); err != nil {
		return nil, err
	}
	if config.Credentials, err = o.credentialsProvider(ctx, loc.Spec.Credential, config.Profile); err != nil {
		return nil, err
	}
	if config.Condition, err = o.s3Condition(loc, p); err != nil {
		return nil, err
	}
	return s3store.Open(ctx, config)
}

// s3Condition is shared by all stores of one state of a location, so that the server is probed once.
func (o *Opener) s3Condition(loc *velerov1.BackupStorageLocation, p bucketPlace) (*s3store.Condition, error) {
	probes := p.prefix + probePrefix
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		probes = p.prefix + layout.RestoresDir // nothing else is written
	}
	spec, err := json.Marshal(loc.Spec)
	if err != nil {
		return nil, err
	}
	key := locationRevision{loc.UID, sha256.Sum256(spec)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conditions[key] == nil {
		maps.DeleteFunc(o.conditions, func(old locationRevision, _ *s3store.Condition) bool { return old.uid == key.uid })
		o.conditions[key] = s3store.NewCondition(probes)
	}
	return o.conditions[key], nil
}

// caBundle returns the PEM of spec.objectStorage.caCert or caCertRef; both together are an error
// (Velero 1.18).
func (o *Opener) caBundle(ctx context.Context, spec *velerov1.ObjectStorageLocation) ([]byte, error) {
	if spec.CACertRef == nil {
		return spec.CACert, nil
	}
	if len(spec.CACert) > 0 {
		return nil, errgrpc.Field("spec.objectStorage.caCertRef", "cannot be set together with caCert")
	}
	return o.readSecret(ctx, "spec.objectStorage.caCertRef", spec.CACertRef)
}

// credentialsProvider returns the keys of the Secret, nil for those of the environment. Of the
// installation's own Secret, which may be for another provider, a profile that is not there is no
// error.
func (o *Opener) credentialsProvider(ctx context.Context, ref *corev1.SecretKeySelector, profile string) (aws.CredentialsProvider, error) {
	data, err := o.credentialText(ctx, ref)
	if data == nil || err != nil {
		return nil, err
	}
	if profile == "" {
		profile = defaultProfile
	}
	keys, err := parseCredentials(data, profile)
	if ref == nil {
		if errors.Is(err, errNoProfile) {
			return nil, nil //nolint:nilnil // no provider means the SDK's own chain
		}
		ref = velerov1.InstalledCredential()
	}
	if err != nil {
		return nil, errgrpc.Field("spec.credential", "Secret %q, key %q: %v", ref.Name, ref.Key, err)
	}
	return credentials.NewStaticCredentialsProvider(keys.id, keys.secret, keys.token), nil
}

// credentialText is what the location's Secret holds, or else the installation's; nil when there is
// neither.
func (o *Opener) credentialText(ctx context.Context, ref *corev1.SecretKeySelector) ([]byte, error) {
	if ref == nil {
		ref = velerov1.InstalledCredential()
	}
	return o.readSecret(ctx, "spec.credential", ref)
}

// readSecret reads one key of a Secret; nil without an error when it is optional and not there.
func (o *Opener) readSecret(ctx context.Context, field string, ref *corev1.SecretKeySelector) ([]byte, error) {
	var secret corev1.Secret
	err := o.reader.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: ref.Name}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: read Secret %q: %w", field, ref.Name, err)
	}
	data, ok := secret.Data[ref.Key]
	switch {
	case err == nil && ok:
		return data, nil
	case ptr.Deref(ref.Optional, false):
		return nil, nil
	case err != nil:
		return nil, errgrpc.Field(field, "Secret %q does not exist", ref.Name)
	}
	return nil, errgrpc.Field(field, "Secret %q has no key %q", ref.Name, ref.Key)
}
