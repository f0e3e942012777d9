package doctor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

func TestVolumeData(t *testing.T) {
	const secret, namespace = "Secret velero-repo-credentials", "namespace velero"
	place := func(level string, password map[string][]byte) []client.Object {
		objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}}
		if level != "" {
			objects[0].SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": level})
		}
		if password != nil {
			objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero-repo-credentials"}, Data: password})
		}
		return objects
	}
	repository := func(annotations map[string]string, results ...velerov1.BackupRepositoryMaintenanceResult) client.Object {
		r := &velerov1.BackupRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "shop-default-kopia", Annotations: annotations}}
		for i, result := range results {
			r.Status.RecentMaintenance = append(r.Status.RecentMaintenance, velerov1.BackupRepositoryMaintenanceStatus{Result: result, Message: fmt.Sprint("run ", i)})
		}
		return r
	}
	for name, c := range map[string]struct {
		objects []client.Object
		status  doctor.Status
		subject string
		words   string
	}{
		"a known password": {place("", map[string][]byte{"repository-password": []byte("static-passw0rd\n")}), doctor.Warning, secret, "everybody knows"},
		"no password":      {place("", map[string][]byte{"other": []byte("x")}), doctor.Failed, secret, "no key repository-password"},
		"a restricted one": {place("restricted", nil), doctor.Warning, namespace, "refuses mover Pods"},
		"a foreign run":    {append(place("", nil), repository(map[string]string{"holdfast.io/maintenance-stopped": "2026-01-02T03:04:05Z"})), doctor.Failed, "BackupRepository shop-default-kopia", "2026-01-02T03:04:05Z"},
		"a failed run":     {append(place("", nil), repository(nil, "Succeeded", "Failed")), doctor.Warning, "BackupRepository shop-default-kopia", "run 1"},
		"no namespace":     {nil, doctor.Failed, namespace, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.objects = c.objects
			requireFinding(t, c.status, b.runCheck("volumedata"), c.subject, c.words)
		})
	}
	for _, objects := range [][]client.Object{place("", nil), append(place("privileged", map[string][]byte{"repository-password": []byte("own")}), repository(nil, "Failed", "Succeeded"))} {
		b := newBed(t)
		b.objects = objects
		requireFine(t, b.runCheck("volumedata"))
	}
	b := newBed(t)
	b.err = func(verb string, _ any) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, verb, nil)
	}
	require.Equal(t, []string{secret + ": it cannot be read by you", namespace + ": its labels cannot be read by you", "maintenance: BackupRepositories cannot be listed by you"},
		findingsWith(doctor.Skipped, b.runCheck("volumedata")))
}
