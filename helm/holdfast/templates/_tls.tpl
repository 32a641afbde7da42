{{- /* Whether certificates are asked for. */ -}}
{{- define "holdfast.tls.on" -}}
{{- if ne .Values.tls.from "insecure" }}yes{{ end -}}
{{- end -}}

{{- define "holdfast.tls.check" -}}
{{- $tls := .Values.tls -}}
{{- if not $tls.from -}}
{{- fail "tls.from is empty: say where the certificates come from (tls.from=certManager, or tls.from=secrets with tls.secrets.coordinator, .agent, .operator and .viewer), or ask for plaintext by name with tls.from=insecure" -}}
{{- end -}}
{{- if eq $tls.from "certManager" -}}
{{- include "holdfast.needs" (dict "root" . "api" "cert-manager.io/v1" "from" "cert-manager" "value" "tls.from=certManager" "mend" "or give secrets of yours (tls.from=secrets)") -}}
{{- if and (not .Values.coordinator.enabled) (not $tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is empty and this release has no coordinator: name the issuer of the other release" -}}
{{- end -}}
{{- end -}}
{{- if and (eq $tls.from "secrets") .Values.coordinator.enabled -}}
{{- range $name := list "coordinator" "viewer" -}}
{{- if not (get $tls.secrets $name) -}}
{{- fail (printf "tls.from is secrets and tls.secrets.%s is empty: name a secret with ca.crt, tls.crt and tls.key" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.tls.denyList" -}}
{{- $tls := .Values.tls -}}
{{- if and $tls.denyList.configMap (eq $tls.from "insecure") (not .Values.coordinator.tokens.secretName) -}}
{{- fail "tls.denyList.configMap has no effect where callers are not authenticated: tls.from is insecure, and coordinator.tokens.secretName is empty" -}}
{{- end -}}
{{- end -}}

{{- /* The secret of the coordinators, and that of whoever looks. */ -}}
{{- define "holdfast.tls.secret" -}}
{{- if eq .root.Values.tls.from "secrets" -}}
{{ get .root.Values.tls.secrets .of }}
{{- else -}}
{{ include "holdfast.fullname" .root }}-{{ .of }}-tls
{{- end -}}
{{- end -}}

{{- /* The files below a folder as flags of a daemon. */ -}}
{{- define "holdfast.tls.flags" -}}
- --tls-cert={{ . }}/tls.crt
- --tls-key={{ . }}/tls.key
- --tls-ca={{ . }}/ca.crt
{{- end -}}

{{- /* The same as variables: what `holdfast` in this container shows when it calls. */ -}}
{{- define "holdfast.tls.env" -}}
- {name: HOLDFAST_TLS_CERT, value: {{ . }}/tls.crt}
- {name: HOLDFAST_TLS_KEY, value: {{ . }}/tls.key}
- {name: HOLDFAST_TLS_CA, value: {{ . }}/ca.crt}
{{- end -}}

{{- define "holdfast.tls.issuer" -}}
{{- $ref := .Values.tls.certManager.issuerRef -}}
{{- if $ref.name -}}
name: {{ $ref.name }}
kind: {{ $ref.kind }}
group: {{ $ref.group }}
{{- else -}}
name: {{ include "holdfast.fullname" . }}-authority
kind: Issuer
group: cert-manager.io
{{- end -}}
{{- end -}}

{{- /* How a job's objects get certificates: what _job.tpl takes of the release. */ -}}
{{- define "holdfast.tls.context" -}}
{{- $tls := .Values.tls -}}
{{- $hours := int $tls.certManager.hours -}}
from: {{ $tls.from }}
peerName: {{ $tls.peerName }}
csiDriver: {{ and (eq $tls.from "certManager") $tls.certManager.csiDriver }}
hours: {{ $hours }}
agentSecret: {{ ternary $tls.secrets.agent "" (eq $tls.from "secrets") | quote }}
denyMap: {{ ternary "" $tls.denyList.configMap (eq $tls.from "insecure") | quote }}
denyKey: {{ $tls.denyList.key | quote }}
submitSecret: {{ ternary $tls.secrets.operator "" (eq $tls.from "secrets") | quote }}
issuer: {{- include "holdfast.tls.issuer" . | nindent 2 }}
{{- end -}}
