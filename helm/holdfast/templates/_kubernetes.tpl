{{- /* Whether coordinators ask the API for anything, within the namespace or beyond it. */ -}}
{{- define "holdfast.kube.on" -}}
{{- $k := .Values.kubernetes -}}
{{- if or $k.replaceNodes.enabled $k.watchHosts $k.events .Values.page.enabled }}yes{{ end -}}
{{- end -}}

{{- define "holdfast.kube.flags" -}}
{{- $k := .Values.kubernetes -}}
{{- if $k.replaceNodes.enabled }}
- --replace-nodes
- --replace-after-s={{ $k.replaceNodes.afterS }}
- --replace-per-hour={{ $k.replaceNodes.perHour }}
{{- if not $k.replaceNodes.force }}
- --no-force-replacement
{{- end }}
{{- if $k.replaceNodes.cordonHosts }}
- --cordon-hosts
{{- end }}
{{- end }}
{{- if $k.watchHosts }}
- --watch-hosts
{{- end }}
{{- if $k.events }}
- --kube-events
{{- end }}
{{- if .Values.page.enabled }}
- --label-leader
{{- end }}
{{- end -}}

{{- define "holdfast.kube.check" -}}
{{- if and (include "holdfast.kube.on" .) (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "something under kubernetes, or page.enabled, is on and there is no service account of ours: set serviceAccount.create=true, or name one in serviceAccount.name" -}}
{{- end -}}
{{- if and .Values.kubernetes.replaceNodes.cordonHosts (not .Values.kubernetes.replaceNodes.enabled) -}}
{{- fail "kubernetes.replaceNodes.cordonHosts is on and kubernetes.replaceNodes.enabled is not: hosts are cordoned before a pod is deleted" -}}
{{- end -}}
{{- end -}}

{{- /* Whether a role within the namespace is needed. */ -}}
{{- define "holdfast.kube.roles" -}}
{{- if or .Values.kubernetes.replaceNodes.enabled .Values.kubernetes.events .Values.page.enabled }}yes{{ end -}}
{{- end -}}
