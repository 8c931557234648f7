// Before anything is drawn: the colours that were chosen last.
try {
  const scheme = localStorage.getItem('windrow.scheme');
  if (scheme) document.documentElement.dataset.scheme = scheme;
} catch { /* no storage: as the system has them */ }
