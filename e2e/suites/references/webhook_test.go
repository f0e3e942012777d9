package references

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

// webhook is asked before each custom resource of the estate is created.
type webhook struct {
	mu     sync.Mutex
	before func(*admissionv1.AdmissionRequest) (answers bool)
}

// startWebhook starts a webhook that must be asked, and lets everything pass.
func startWebhook(t *testing.T, s *site.Site) *webhook {
	t.Helper()
	w := &webhook{}
	server := httptest.NewTLSServer(w)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, s.Client.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "estate"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "estate.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{"cluster.x-k8s.io", "addons.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "cert-manager.io", "postgresql.cnpg.io"},
					APIVersions: []string{"*"}, Resources: []string{"*"},
				},
			}},
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds: new(int32(30)),
		}},
	}))
	return w
}

// setBefore sets what is called before each creation that is no dry run; where it returns false, the webhook
// cannot answer. Nil lets everything pass.
func (w *webhook) setBefore(do func(*admissionv1.AdmissionRequest) (answers bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = do
}

// ServeHTTP implements http.Handler.
func (w *webhook) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	before := w.before
	w.mu.Unlock()
	dry := review.Request.DryRun != nil && *review.Request.DryRun
	if before != nil && !dry && !before(review.Request) {
		out.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	review.Response, review.Request = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}, nil
	_ = json.NewEncoder(out).Encode(review)
}
