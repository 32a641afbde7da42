"""Judge ranks by minutes of evidence: what is too little to be seen in one minute shows in four."""
