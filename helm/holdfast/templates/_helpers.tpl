{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- /* An image by its digest, or by its tag where there is none. */ -}}
{{- define "holdfast.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .fallback .image.tag }}
{{- end -}}
{{- end -}}

{{- define "holdfast.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "holdfast.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "holdfast.podSecurity.ours" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Of pods of daemons. */ -}}
{{- define "holdfast.podSecurity" -}}
{{- include "holdfast.over" (dict "ours" (include "holdfast.podSecurity.ours" .) "own" .Values.podSecurityContext) -}}
{{- end -}}

{{- /* Of containers of daemons. */ -}}
{{- define "holdfast.containerSecurity" -}}
{{- include "holdfast.over" (dict "ours" (include "holdfast.locked" .) "own" .Values.securityContext) -}}
{{- end -}}

{{- /* The text `ours` with each key that `own` has as it is there. */ -}}
{{- define "holdfast.over" -}}
{{- $found := fromYaml .ours -}}
{{- range $name, $value := .own }}{{ $_ := set $found $name $value }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{- define "holdfast.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* A number as JSON values have it, without an exponent; other values as they are. */ -}}
{{- define "holdfast.plain" -}}
{{- if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- /* Settings as flags of a daemon, one line each. */ -}}
{{- define "holdfast.flags" -}}
{{- range $name, $value := . }}
{{- $flag := replace "_" "-" $name }}
{{- if kindIs "bool" $value }}
- {{ printf "--%s%s" (ternary "" "no-" $value) $flag | quote }}
{{- else }}
- {{ printf "--%s=%s" $flag (include "holdfast.plain" $value) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* host:port of every candidate, comma separated. */ -}}
{{- define "holdfast.coordinators" -}}
{{- $name := include "holdfast.fullname" . -}}
{{- $found := list -}}
{{- range $index := until (int .Values.coordinator.replicas) -}}
{{- $found = append $found (printf "%s-coordinator-%d.%s-candidates.%s.svc:%d" $name $index $name $.Release.Namespace (int $.Values.coordinator.port)) -}}
{{- end -}}
{{- join "," $found -}}
{{- end -}}

{{- define "holdfast.etcdEndpoints" -}}
{{- if .Values.etcd.bundled.enabled -}}
{{- $name := include "holdfast.fullname" . -}}
{{- $found := list -}}
{{- range $index := until 3 -}}
{{- $found = append $found (printf "%s-etcd-%d.%s-etcd.%s.svc:2379" $name $index $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $found -}}
{{- else -}}
{{- join "," .Values.etcd.endpoints -}}
{{- end -}}
{{- end -}}

{{- /* The secret with etcd's certificates as the coordinator uses them; empty: no TLS. */ -}}
{{- define "holdfast.etcdSecret" -}}
{{- if and .Values.etcd.bundled.enabled .Values.etcd.bundled.certificate.enabled -}}
{{ include "holdfast.fullname" . }}-etcd
{{- else -}}
{{ .Values.etcd.tls.secretName }}
{{- end -}}
{{- end -}}

{{- /* Fail unless the cluster serves an API that a value asks for. */ -}}
{{- define "holdfast.needs" -}}
{{- if not (or (.root.Capabilities.APIVersions.Has .api) (has .api .root.Values.apiVersions)) -}}
{{- fail (printf "%s needs %s, which this cluster does not serve: install %s first, %s (rendering without a cluster: apiVersions={%s})" .value .api .from (default (printf "or set %s to false" .value) .mend) .api) -}}
{{- end -}}
{{- end -}}

{{- /* What cannot be, told before anything is made. */ -}}
{{- define "holdfast.check" -}}
{{- if and .Values.coordinator.enabled (not .Values.etcd.bundled.enabled) (empty .Values.etcd.endpoints) -}}
{{- fail "etcd.endpoints is empty: name your etcd as etcd.endpoints={host:2379,...}, or set etcd.bundled.enabled=true for a trial" -}}
{{- end -}}
{{- range .Values.etcd.endpoints -}}
{{- if not (regexMatch ":[0-9]+$" .) -}}
{{- fail (printf "etcd.endpoints has %s, which names no port: host:port each, as %s:2379" . .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.etcd.bundled.enabled .Values.etcd.endpoints -}}
{{- fail "etcd.endpoints and etcd.bundled.enabled exclude each other: drop one" -}}
{{- end -}}
{{- if and .Values.etcd.user (not .Values.etcd.passwordSecret.name) -}}
{{- fail "etcd.user is set and etcd.passwordSecret.name is not: name the secret that holds the password" -}}
{{- end -}}
{{- if and .Values.coordinator.alertWebhook.secretName (hasKey .Values.coordinator.settings "alert_webhook") -}}
{{- fail "coordinator.alertWebhook.secretName and coordinator.settings.alert_webhook exclude each other: drop one" -}}
{{- end -}}
{{- if and .Values.etcd.bundled.certificate.enabled (not .Values.etcd.bundled.certificate.issuerRef.name) -}}
{{- fail "etcd.bundled.certificate.enabled needs etcd.bundled.certificate.issuerRef.name: the issuer that signs" -}}
{{- end -}}
{{- end -}}

{{- /* Variables that people add to a container. One that is ours would be there twice: refused by name. */ -}}
{{- define "holdfast.more.env" -}}
{{- $of := . -}}
{{- range .env -}}
{{- if has .name $of.ours -}}
{{- fail (printf "%s.env has %s, which the chart sets itself: drop it" $of.at .name) -}}
{{- end -}}
{{- end -}}
{{- with .env -}}{{ toYaml . }}{{- end -}}
{{- end -}}
