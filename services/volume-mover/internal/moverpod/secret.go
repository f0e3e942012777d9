package moverpod

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// providerS3 is the provider of the locations that movers reach.
const providerS3 = "velero.io/aws"

// BuildSecret returns the Secret of a mover Pod: the manifests of the location and of the Secrets that it
// names, the password of the repository, and the values of variables. Locations that no mover Pod reaches are
// refused.
func BuildSecret(ctx context.Context, r client.Reader, s Settings, pod *corev1.Pod, loc *velerov1.BackupStorageLocation, password []byte) (*corev1.Secret, error) {
	if err := checkLocation(loc); err != nil {
		return nil, err
	}
	manifests := []client.Object{&velerov1.BackupStorageLocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: velerov1.GroupVersion.String(), Kind: "BackupStorageLocation"},
		ObjectMeta: metav1.ObjectMeta{Namespace: loc.Namespace, Name: loc.Name, UID: loc.UID}, Spec: loc.Spec,
	}}
	keys := map[string]map[string][]byte{} // one Secret may be named twice
	for _, ref := range namedSecrets(loc) {
		data, err := readKey(ctx, r, loc.Namespace, ref)
		if err != nil {
			return nil, fmt.Errorf("backup storage location %q: %w", loc.Name, err)
		}
		if data == nil {
			continue
		}
		if keys[ref.Name] == nil {
			keys[ref.Name] = map[string][]byte{}
			manifests = append(manifests, &corev1.Secret{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
				ObjectMeta: metav1.ObjectMeta{Namespace: loc.Namespace, Name: ref.Name}, Data: keys[ref.Name],
			})
		}
		keys[ref.Name][ref.Key] = data
	}
	var text bytes.Buffer
	for _, m := range manifests {
		data, err := yaml.Marshal(m)
		if err != nil {
			return nil, err
		}
		text.WriteString("---\n")
		text.Write(data)
	}
	values := map[string][]byte{locationKey: text.Bytes(), passwordKey: password}
	for name, value := range s.Environment {
		values[environmentKey(name)] = []byte(value)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences},
		Data:       values,
	}, nil
}

func checkLocation(loc *velerov1.BackupStorageLocation) error {
	switch provider := location.Provider(loc); {
	case provider == holdfast.ProviderFile:
		return newRefusal("backup storage location %q is a directory (provider %s), which no Pod can mount; volume data needs a location in S3", loc.Name, provider)
	case provider != providerS3, loc.Annotations[holdfast.AnnotationObjectStore] != "":
		return newRefusal("backup storage location %q (provider %s) is served by a plugin, which mover Pods do not have; volume data needs a location in S3", loc.Name, provider)
	}
	return nil
}

// namedSecrets are the keys of Secrets that a location is opened with.
func namedSecrets(loc *velerov1.BackupStorageLocation) []*corev1.SecretKeySelector {
	credential := loc.Spec.Credential
	if credential == nil {
		credential = velerov1.InstalledCredential()
	}
	refs := []*corev1.SecretKeySelector{credential}
	if s := loc.Spec.ObjectStorage; s != nil && s.CACertRef != nil {
		refs = append(refs, s.CACertRef)
	}
	return refs
}

// readKey reads one key of a Secret; nil without an error when it is optional and not there.
func readKey(ctx context.Context, r client.Reader, namespace string, ref *corev1.SecretKeySelector) ([]byte, error) {
	secret := &corev1.Secret{}
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read Secret %q: %w", ref.Name, err)
	}
	data, ok := secret.Data[ref.Key]
	switch {
	case ok:
		return data, nil
	case ptr.Deref(ref.Optional, false):
		return nil, nil
	}
	return nil, newRefusal("Secret %q with key %q does not exist", ref.Name, ref.Key)
}
