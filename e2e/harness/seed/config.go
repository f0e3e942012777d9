package seed

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	configMapsPerNamespace = 150
	secretsPerNamespace    = 30
	nearlyOneMB            = 1_000_000 // the API server refuses ConfigMaps whose data is over 1 MiB
)

// configObjects returns the ConfigMaps and Secrets of one namespace.
func configObjects(namespace string) []client.Object {
	var objects []client.Object
	for i := range configMapsPerNamespace {
		name := fmt.Sprintf("config-%03d", i)
		objects = append(objects, &corev1.ConfigMap{
			ObjectMeta: objectMeta(namespace, name, fmt.Sprintf("shard=%d", i%7)),
			Data:       map[string]string{"settings.yaml": textFor(namespace+name, 200+i*13)},
		})
	}
	for i := range secretsPerNamespace {
		name := fmt.Sprintf("secret-%03d", i)
		objects = append(objects, &corev1.Secret{
			ObjectMeta: objectMeta(namespace, name),
			Type:       corev1.SecretTypeOpaque,
			Data:       map[string][]byte{"key.bin": bytesFor(namespace+name, 64+i*31), "empty": {}},
		})
	}
	return objects
}

// oddObjects returns objects at the edges of what the API server accepts.
func oddObjects(namespace string) []client.Object {
	long := longDNSName()
	withData := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, name), Data: data}
	}
	big := withData("nearly-one-megabyte", map[string]string{"blob": textFor("blob", nearlyOneMB)})
	bigSecret := &corev1.Secret{ObjectMeta: objectMeta(namespace, "nearly-one-megabyte"), Data: map[string][]byte{"blob": bytesFor("blob", 700_000)}}
	awkward := withData("awkward-text", map[string]string{
		"text": awkwardText, "empty": "", "json": `{"nested":"{\"deep\":[1,2,3]}"}`, "-._azAZ09": "a key with every legal character",
		strings.Repeat("k", 253): "the longest key",
	})
	awkward.Annotations = map[string]string{
		"sample.holdfast.io/text":                          awkwardText,
		"sample.holdfast.io/long":                          textFor("long annotation", 5000),
		"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"v1","kind":"ConfigMap"}`,
	}
	awkward.Labels["sample.holdfast.io/"+strings.Repeat("l", 63)] = longLabelValue()
	awkward.Finalizers = nil
	binary := &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, "binary"), BinaryData: map[string][]byte{"all-bytes": everyByte()}}
	immutable := withData("immutable", map[string]string{"a": "b"})
	immutable.Immutable = new(true)
	return []client.Object{
		big, bigSecret, awkward, binary, immutable,
		withData(long, map[string]string{"name": "as long as a name may be"}),
		withData("0", nil),
		withData("a.b-c.0", map[string]string{}),
		&corev1.Secret{ObjectMeta: objectMeta(namespace, long), Data: map[string][]byte{"all-bytes": everyByte()}},
		typedSecret(namespace, "login", corev1.SecretTypeBasicAuth, map[string]string{"username": "ada", "password": textFor("password", 32)}),
		typedSecret(namespace, "registry", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: dockerConfig()}),
		typedSecret(namespace, "ssh", corev1.SecretTypeSSHAuth, map[string]string{corev1.SSHAuthPrivateKey: textFor("ssh", 400)}),
	}
}

func typedSecret(namespace, name string, kind corev1.SecretType, data map[string]string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: objectMeta(namespace, name), Type: kind, Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	return secret
}

func dockerConfig() string {
	config, _ := json.Marshal(map[string]any{"auths": map[string]any{"registry.example.com": map[string]string{"auth": textFor("auth", 24)}}})
	return string(config) // maps of strings always marshal
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}
