package moverpod_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

const above = "/k/pods/pod-uid/volumes/"

func newPod(source corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "pod-uid"},
		Spec:       corev1.PodSpec{Volumes: []corev1.Volume{{Name: "other"}, {Name: "data", VolumeSource: source}}},
	}
}

func TestWhereTheKubeletHasAVolumeOfAPod(t *testing.T) {
	for name, c := range map[string]struct {
		source corev1.VolumeSource
		want   string // empty: refused
	}{
		"emptyDir":   {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, "kubernetes.io~empty-dir/data"},
		"inline CSI": {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, "kubernetes.io~csi/data/mount"},
		"NFS":        {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}, "kubernetes.io~nfs/data"},
		"iSCSI":      {corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}, "kubernetes.io~iscsi/data"},
		"FC":         {corev1.VolumeSource{FC: &corev1.FCVolumeSource{}}, "kubernetes.io~fc/data"},
		"flexVolume": {corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "acme/disk"}}, "acme~disk/data"},
		"hostPath":   {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, ""},
		"Secret":     {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := moverpod.FindVolume(t.Context(), fake.NewClientBuilder().Build(), "/k", newPod(c.source), "data")
			var refused *moverpod.RefusalError
			require.Equal(t, c.want == "", errors.As(err, &refused), "%v", err)
			if c.want != "" {
				require.NoError(t, err)
				require.Equal(t, above+c.want, found.Directory)
				require.Nil(t, found.Claim)
			}
		})
	}
}

func TestWhereTheKubeletHasAVolumeOfAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   string // empty: refused
	}{
		"CSI":        {corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}, "kubernetes.io~csi/pv/mount"},
		"migrated":   {corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}, "kubernetes.io~csi/pv/mount"},
		"local":      {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}, "kubernetes.io~local-volume/pv"},
		"NFS":        {corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}, "kubernetes.io~nfs/pv"},
		"iSCSI":      {corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{}}, "kubernetes.io~iscsi/pv"},
		"FC":         {corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{}}, "kubernetes.io~fc/pv"},
		"flexVolume": {corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "acme/disk"}}, "acme~disk/pv"},
		"hostPath":   {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, ""},
		"unknown":    {corev1.PersistentVolumeSource{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := fake.NewClientBuilder().WithObjects(
				newClaim("claim", corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}), newClaim("web-0-data", corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}),
				&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: c.source}},
			).Build()
			for claim, source := range map[string]corev1.VolumeSource{
				"claim":      {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}},
				"web-0-data": {Ephemeral: &corev1.EphemeralVolumeSource{}},
			} {
				found, err := moverpod.FindVolume(t.Context(), r, "/k", newPod(source), "data")
				var refused *moverpod.RefusalError
				require.Equal(t, c.want == "", errors.As(err, &refused), "%v", err)
				if c.want != "" {
					require.NoError(t, err)
					require.Equal(t, above+c.want, found.Directory)
					require.Equal(t, claim, found.Claim.Name)
				}
			}
		})
	}
}

func newClaim(name string, spec corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
}

func TestAClaimThatHasNoDirectoryIsRefused(t *testing.T) {
	for message, spec := range map[string]corev1.PersistentVolumeClaimSpec{
		"is a block volume": {VolumeName: "pv", VolumeMode: ptr.To(corev1.PersistentVolumeBlock)},
		"is not bound":      {},
		"PersistentVolume":  {VolumeName: "gone"},
	} {
		r := fake.NewClientBuilder().WithObjects(newClaim("claim", spec)).Build()
		_, err := moverpod.FindVolume(t.Context(), r, "/k", newPod(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}), "data")
		require.ErrorContains(t, err, message)
	}
}
