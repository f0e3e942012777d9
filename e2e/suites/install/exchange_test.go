//go:build node && velero

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// exchanged has a claim whose snapshot is moved, and a claim and an emptyDir whose files are taken. Velero's init container
// gets the user of the application, which may look into all of them.
const exchanged = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: keeper}
spec:
  serviceName: keeper
  selector: {matchLabels: {app: keeper}}
  template:
    metadata: {labels: {app: keeper}, annotations: {` + velerov1.AnnotationBackupVolumes + `: "kept,scratch"}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: keeper
          image: ` + node.TestImage + `
          imagePullPolicy: Never
          command: [sleep, "1000000"]
          securityContext: {runAsUser: 0}
          volumeMounts: [{name: moved, mountPath: /moved}, {name: kept, mountPath: /kept}, {name: scratch, mountPath: /scratch}]
      volumes: [{name: scratch, emptyDir: {}}]
  volumeClaimTemplates:
    - metadata: {name: moved}
      spec: {storageClassName: ` + csistorage.Late + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
    - metadata: {name: kept}
      spec: {storageClassName: ` + node.StorageClass + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`

// mover is who moves the data of volumes for the server of a namespace: Pods of an image.
type mover struct{ name, namespace, image string }

var (
	ownMover = mover{"holdfast", server, "/holdfast-volume-mover:"}
	// veleroServer is an installation of its own, in the same cluster and with the same bucket.
	veleroServer = mover{"velero", "published", veleroImage}
	// veleroAgent serves the requests of Holdfast.
	veleroAgent = mover{"agent", server, veleroImage}
)

// TestExchangeWithVelero has Holdfast and Velero's published server, which run side by side, restore the data of volumes that the other
// has stored. Then Velero's node-agent takes the place of Holdfast's movers.
func TestExchangeWithVelero(t *testing.T) {
	x := &exchange{bed: newBed(t), want: map[string]map[string]string{}}
	x.storage = csistorage.Serve(t, x.config, x.kubeconfig, node.DriverDir(x.dir), x.client)
	values := []string{"--set", "features={EnableCSI}", "--set", "configuration.backupSyncPeriod=1s"}
	x.installChart(t, values...)
	t.Cleanup(func() {
		if t.Failed() {
			x.logExchange(t)
		}
	})
	x.importVelero(t)
	x.sharePassword(t)
	x.installVelero(t, veleroServer.namespace, "Secret", "ServiceAccount", "ClusterRoleBinding", "BackupStorageLocation", "Deployment", "DaemonSet")

	x.storeVolumes(t, "ours", ownMover)
	x.storeVolumes(t, "theirs", veleroServer)
	x.restoreVolumes(t, "ours", veleroServer)
	x.restoreVolumes(t, "theirs", ownMover)

	x.upgradeChart(t, append(values, "--set", "backupRunner.args.volume-mover=velero", "--set", "volumeMover.args.volume-mover=velero")...)
	x.awaitReplaced(t, "backup-runner", "volume-mover")
	x.installVelero(t, server, "ServiceAccount", "ClusterRoleBinding", "DaemonSet")
	x.storeVolumes(t, "served", veleroAgent)
	x.restoreVolumes(t, "served", veleroAgent)
	x.restoreVolumes(t, "served", veleroServer)
}

// exchange is a cluster with both, and what is in the volumes of each namespace that is backed up.
type exchange struct {
	*bed
	storage *csistorage.Storage
	want    map[string]map[string]string
}

// storeVolumes makes an application with files in its volumes, and a backup of it.
func (x *exchange) storeVolumes(t *testing.T, name string, by mover) {
	t.Helper()
	x.createNamespace(t, name)
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(exchanged), &object))
	application := unstructuredOf(object)
	application.SetNamespace(name)
	require.NoError(t, x.client.Create(t.Context(), application))
	x.awaitKeeper(t, name)
	for volume, dir := range x.volumeDirs(t, name) {
		volumefiles.Write(t, dir, name+" "+volume)
	}
	x.want[name] = x.describeVolumes(t, name)
	x.runCommand(t, by, "backup", "create", name, "--include-namespaces", name, "--snapshot-move-data", "--wait")
	x.requireServed(t, by, velerov1.LabelBackupName, name, "podvolumebackups,datauploads")
}

// restoreVolumes restores a backup beside the application, and compares what is in the volumes of both.
func (x *exchange) restoreVolumes(t *testing.T, name string, by mover) {
	t.Helper()
	require.Eventually(t, func() bool {
		found := &velerov1.PodVolumeBackupList{}
		err := x.client.List(t.Context(), found, client.InNamespace(by.namespace), client.MatchingLabels{velerov1.LabelBackupName: name})
		return err == nil && len(found.Items) == 2 && x.client.Get(t.Context(), client.ObjectKey{Namespace: by.namespace, Name: name}, &velerov1.Backup{}) == nil
	}, patience, look, "backup %s is found in the bucket", name)
	target := name + "-" + by.name
	x.runCommand(t, by, "restore", "create", target, "--from-backup", name, "--namespace-mappings", name+":"+target, "--wait")
	x.awaitKeeper(t, target)
	require.Equal(t, x.want[name], x.describeVolumes(t, target))
	x.requireServed(t, by, velerov1.LabelRestoreName, target, "podvolumerestores,datadownloads")
}

// runCommand runs the command line of a server for something that has to be completed.
func (x *exchange) runCommand(t *testing.T, by mover, args ...string) {
	t.Helper()
	if by.namespace == server {
		require.Contains(t, x.runHoldfast(t, args...), "Completed")
		return
	}
	require.Contains(t, x.runTool(t, "velero", append([]string{"--namespace", by.namespace}, args...)...), "Completed")
}

// requireServed checks that a Pod of the mover's image has served each of three requests, and that nothing is left of them.
func (x *exchange) requireServed(t *testing.T, by mover, label, name, kinds string) {
	t.Helper()
	events := &corev1.EventList{}
	require.NoError(t, x.client.List(t.Context(), events, client.InNamespace(by.namespace)))
	requests := strings.Fields(x.runTool(t, "kubectl", "--namespace", by.namespace, "get", kinds, "--selector", label+"="+name,
		`--output=jsonpath={range .items[*]}{.metadata.name}={.status.phase}{"\n"}{end}`))
	require.Len(t, requests, 3)
	for _, r := range requests {
		request, phase, _ := strings.Cut(r, "=")
		require.Equal(t, string(velerov1.PodVolumePhaseCompleted), phase, request)
		require.True(t, slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == request && strings.Contains(e.Message, by.image)
		}), "%s was served by a Pod of image %s", request, by.image)
	}
	x.storage.RequireNothingLeft(t, by.namespace)
}

// awaitReplaced waits until the Pods of services that an upgrade has replaced are gone: a volume-mover that is about to end still
// serves requests, beside Velero's node-agent.
func (x *exchange) awaitReplaced(t *testing.T, services ...string) {
	t.Helper()
	for _, service := range services {
		require.Eventually(t, func() bool {
			pods := &corev1.PodList{}
			return x.client.List(t.Context(), pods, client.InNamespace(server), client.MatchingLabels{"app.kubernetes.io/component": service}) == nil && len(pods.Items) == 1
		}, patience, look, "one Pod of %s is left", service)
	}
}

// volumeDirs returns the directories of this machine that have the volumes of an application.
func (x *exchange) volumeDirs(t *testing.T, namespace string) map[string]string {
	t.Helper()
	pod, claim := &corev1.Pod{}, &corev1.PersistentVolumeClaim{}
	require.NoError(t, x.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: keeperPod}, pod))
	require.NoError(t, x.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "kept-" + keeperPod}, claim))
	return map[string]string{
		"moved":   filepath.Join(node.DriverDir(x.dir), "volumes", x.storage.Volume(t, namespace, "moved-"+keeperPod)),
		"kept":    filepath.Join(x.dir, "volumes", claim.Spec.VolumeName),
		"scratch": filepath.Join(x.dir, "kubelet", "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir", "scratch"),
	}
}

// describeVolumes maps each entry of the volumes of an application to what both servers keep of it.
func (x *exchange) describeVolumes(t *testing.T, namespace string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for volume, dir := range x.volumeDirs(t, namespace) {
		for name, entry := range volumefiles.DescribeKept(t, dir) {
			all[volume+"/"+name] = entry
		}
	}
	return all
}

// importVelero gives the node the image of `e2e/tools/veleroimage.sh`.
func (x *exchange) importVelero(t *testing.T) {
	t.Helper()
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	require.NoError(t, node.Import(t.Context(), x.dir, filepath.Join(root, ".out", "velero", "velero.tar")), "run e2e/tools/veleroimage.sh")
}

// sharePassword makes the namespace of Velero's server, with the password of Holdfast's repositories.
func (x *exchange) sharePassword(t *testing.T) {
	t.Helper()
	password := &corev1.Secret{}
	require.Eventually(t, func() bool {
		return x.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: velerov1.RepositorySecret}, password) == nil
	}, patience, look, "there is a password")
	x.createNamespace(t, veleroServer.namespace)
	theirs := &corev1.Secret{Data: password.Data}
	theirs.Namespace, theirs.Name = veleroServer.namespace, velerov1.RepositorySecret
	require.NoError(t, x.client.Create(t.Context(), theirs))
}

// veleroImage has the name that e2e/tools/veleroimage.sh gives it.
const veleroImage = "holdfast.test/velero:published"

// installVelero makes those objects of `velero install` that are of certain kinds, and waits until they can be used.
func (x *exchange) installVelero(t *testing.T, namespace string, kinds ...string) {
	t.Helper()
	store, err := node.ReadStore(x.dir)
	require.NoError(t, err)
	keys := filepath.Join(t.TempDir(), "cloud")
	require.NoError(t, os.WriteFile(keys, fmt.Appendf(nil, "[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", store.AccessKey, store.SecretKey), 0o600))
	text := x.runTool(t, "velero", "install", "--dry-run", "--output=json", "--namespace="+namespace, "--image="+veleroImage, "--plugins="+veleroImage,
		"--features=EnableCSI", "--use-node-agent", "--provider=aws", "--bucket="+node.Bucket, "--secret-file="+keys, "--use-volume-snapshots=false",
		"--backup-location-config=region="+store.Region+",s3ForcePathStyle=true,s3Url="+store.Endpoint, "--velero-pod-cpu-request=0", "--velero-pod-cpu-limit=0")
	var list struct{ Items []map[string]any }
	require.NoError(t, yaml.Unmarshal([]byte(text), &list))
	for _, item := range list.Items {
		object := unstructuredOf(item)
		switch kind := object.GetKind(); {
		case !slices.Contains(kinds, kind):
			continue
		case kind == "BackupStorageLocation":
			item["spec"].(map[string]any)["backupSyncPeriod"] = "1s"
		case kind == "Deployment":
			require.NoError(t, x.client.Create(t.Context(), keepPlugins(t, item)))
			continue
		}
		require.NoError(t, x.client.Create(t.Context(), object))
	}
	require.Eventually(t, func() bool {
		agent, location := &appsv1.DaemonSet{}, &velerov1.BackupStorageLocation{}
		return x.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "node-agent"}, agent) == nil && agent.Status.NumberReady == 1 &&
			x.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, location) == nil && location.Status.Phase == velerov1.LocationPhaseAvailable
	}, patience, look, "Velero runs in namespace %s", namespace)
}

// keepPlugins returns Velero's Deployment without the init containers that copy plugins, and the volume that they copy them to: the image has
// them there.
func keepPlugins(t *testing.T, item map[string]any) *appsv1.Deployment {
	t.Helper()
	text, err := yaml.Marshal(item)
	require.NoError(t, err)
	d := &appsv1.Deployment{}
	require.NoError(t, yaml.Unmarshal(text, d))
	pod := &d.Spec.Template.Spec
	pod.InitContainers = nil
	pod.Containers[0].VolumeMounts = slices.DeleteFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/plugins" })
	return d
}

// logExchange adds what became of all requests, and what both servers and agents have logged, to the output of a failed test.
func (x *exchange) logExchange(t *testing.T) {
	t.Helper()
	x.logPods(t)
	t.Log(x.runTool(t, "kubectl", "get", "backups,restores,podvolumebackups,podvolumerestores,datauploads,datadownloads,backuprepositories", "--all-namespaces",
		"--output=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name,PHASE:.status.phase,MESSAGE:.status.message,REASON:.status.failureReason"))
	t.Log(x.runTool(t, "kubectl", "get", "pods,persistentvolumeclaims,events", "--all-namespaces"))
	for _, label := range []string{"component=velero", "name=node-agent"} {
		for _, namespace := range []string{veleroServer.namespace, server} {
			t.Log(x.runTool(t, "kubectl", "--namespace", namespace, "logs", "--tail=80", "--prefix", "--selector="+label))
		}
	}
}
