// Package rawlist lists Kubernetes objects as raw JSON, page by page, without decoding them: a page
// is split into items while it arrives and is never held whole.
//
// A list can be pinned to one revision of the cluster: the first page asks for exactly that
// resource version, later pages carry only the continue token, and the revision of every answer is
// compared (Kubernetes API concepts, "resourceVersionMatch=Exact" and "Retrieving large results
// sets in chunks"). A page counts only once its closing JSON and its revision were verified;
// otherwise the consumer is called to roll back what it was given.
//
// Requests are retried when the server is overloaded (429), is away for a moment, or cuts an answer
// short; the page size follows the size of the items. There is no client-side rate limit: the
// server's priority and fairness decides.
package rawlist
